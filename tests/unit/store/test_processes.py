"""Which process is meant, when pids are given out again, clocks are set, containers are apart."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from jupyter_ddl.store import processes
from jupyter_ddl.store.processes import (
    OWNER_VARIABLE,
    ProcessIdentity,
    end_process,
    identity_of,
    is_alive,
    is_gone,
    pids_by,
    this_process,
)
from tests.namespaces import PID, TIME, apart, python, with_clock_set
from tests.until import until

_TELL = """
from jupyter_ddl.store.processes import this_process
print(this_process().token, flush=True)
input()
"""
_TAKE_ONESELF = """
from jupyter_ddl.store.processes import this_process
sys.argv[1:] = [this_process().token]
"""
_JUDGE = """
from jupyter_ddl.store.processes import ProcessIdentity, is_alive, is_gone
process = ProcessIdentity.of_token(sys.argv[1])
print(is_alive(process), is_gone(process))
"""


_OWNER = f"{os.getpid()}:1.00"
"""No other tests on this machine mean it, which may run at the same time."""


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env={OWNER_VARIABLE: _OWNER}
    )
    yield process
    process.kill()
    process.communicate()


def test_this_process_is_alive_and_another_of_its_pid_is_gone() -> None:
    me = this_process()
    assert is_alive(me)
    assert not is_gone(me)
    before = msgspec.structs.replace(me, start_ticks=me.start_ticks - 1)
    assert not is_alive(before)
    assert is_gone(before)


@pytest.mark.parametrize("field", ["boot_id", "namespaces"])
def test_nothing_is_known_of_another_boot_and_of_other_namespaces(field: str) -> None:
    for value in ("another", ""):
        other = msgspec.structs.replace(this_process(), pid=2**22 + 1, **{field: value})
        assert not is_alive(other)
        assert not is_gone(other)


def test_where_the_system_tells_no_namespace_nobody_is_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(processes, "_namespaces", lambda: "")
    me = this_process()
    assert not is_alive(me)
    assert not is_gone(msgspec.structs.replace(me, start_ticks=1))


def test_a_zombie_is_not_alive(child: subprocess.Popen[bytes]) -> None:
    process = psutil.Process(child.pid)
    identity = identity_of(child.pid)
    assert is_alive(identity)
    child.kill()
    until(lambda: process.status() == psutil.STATUS_ZOMBIE, 5.0)
    assert not is_alive(identity)
    assert is_gone(identity)
    child.wait()
    assert not is_alive(identity)
    assert is_gone(identity)


_WITHOUT_DESCRIPTORS = """
import os, resource, sys
from jupyter_ddl.store.processes import ProcessIdentity, boot_id, is_alive, is_gone
processes = [ProcessIdentity.of_token(token) for token in sys.argv[1:]]
boot_id()
resource.setrlimit(resource.RLIMIT_NOFILE, (32, 64))
try:
    while True:
        os.open("/dev/null", os.O_RDONLY)
except OSError:
    told = [f"{is_alive(each)} {is_gone(each)}" for each in processes]
os.write(1, "\\n".join(told).encode())
"""


def test_who_has_no_descriptor_left_takes_nobody_who_runs_for_gone(
    child: subprocess.Popen[bytes],
) -> None:
    """/proc can't be read then, and only "no such process" means that there is none."""
    here = identity_of(child.pid)
    none = msgspec.structs.replace(here, pid=2**22 + 1)
    command = python(_WITHOUT_DESCRIPTORS, here.token, none.token)
    told = subprocess.check_output(command, text=True).splitlines()
    assert told == ["True False", "False True"]


def test_what_proc_hides_of_another_user_is_not_taken_for_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(_pid: int, _signum: int) -> None:
        raise PermissionError

    monkeypatch.setattr(processes, "_stat", lambda _pid: [])
    monkeypatch.setattr("os.kill", refused)
    other = msgspec.structs.replace(this_process(), start_ticks=1)
    assert (is_alive(other), is_gone(other)) == (False, False)


def test_an_identity_survives_json() -> None:
    me = this_process()
    assert msgspec.json.decode(msgspec.json.encode(me), type=ProcessIdentity) == me


def test_processes_are_found_by_the_token_of_their_owner(child: subprocess.Popen[bytes]) -> None:
    assert until(lambda: pids_by(OWNER_VARIABLE).get(_OWNER), 5.0) == [child.pid]


def test_a_token_names_the_very_process_and_nothing_else_is_one() -> None:
    me = this_process()
    assert ProcessIdentity.of_token(me.token) == me
    for text in ("", "7", "test", "7:x", "7:1.00", "b:n:7:1.5"):
        with pytest.raises(ValueError, match=r"invalid literal|not enough values"):
            ProcessIdentity.of_token(text)


def test_a_clock_that_is_set_makes_nobody_dead(tmp_path: Path) -> None:
    command = [*with_clock_set(tmp_path, 3600), *python(_JUDGE, this_process().token)]
    assert subprocess.check_output(command, text=True) == "True False\n"


@pytest.mark.parametrize("flags", [PID, TIME], ids=["of pids", "of times"])
def test_namespaces_know_nothing_of_each_other(flags: tuple[str, ...]) -> None:
    inner = [*apart(*flags), *python(_JUDGE, this_process().token)]
    assert subprocess.check_output(inner, text=True) == "False False\n"
    with subprocess.Popen(
        [*apart(*flags), *python(_TELL)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        there = ProcessIdentity.of_token(process.stdout.readline().strip())
        here = identity_of(there.pid) if Path(f"/proc/{there.pid}").exists() else None
        assert (is_alive(there), is_gone(there)) == (False, False)
        end_process(there, 0.0)  # signals nobody
        assert here is None or is_alive(here)
        assert process.poll() is None
        process.communicate("\n")
    assert not is_gone(there)


def test_a_proc_of_other_pids_is_not_believed() -> None:
    """It shows another process under the pid of this one."""
    source = f"{_TAKE_ONESELF}{_JUDGE}"
    command = [*apart("--pid", "--fork", "--kill-child"), *python(source)]
    assert subprocess.check_output(command, text=True) == "False False\n"
