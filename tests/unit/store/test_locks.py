"""Locks where a file system has none, or has them for each host alone."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from jupyter_ddl.client.history import remove_run
from jupyter_ddl.errors import ClusterError, LedgerBusyError
from jupyter_ddl.ledger.writer import LedgerWriter, lock_path
from jupyter_ddl.protocol.cluster import ClusterSpec
from jupyter_ddl.store import mounts
from jupyter_ddl.store.connection import (
    ConnectionInfo,
    connection_path,
    hold_name,
    read_connection,
    write_connection,
)
from jupyter_ddl.store.locks import Holder, this_holder
from jupyter_ddl.store.paths import ledger_path, run_dir, runtime_dir
from tests.leaks import Home
from tests.namespaces import on_another_host, python, without_locks
from tests.unit.ledger.event_makers import submitted

_HOLD = """
from jupyter_ddl.ledger.writer import LedgerWriter
writer = LedgerWriter.open(sys.argv[1])
print("held", flush=True)
if input() == "close":
    writer.close()
"""
_CHECK = """
from jupyter_ddl.errors import JupyterDDLError
from jupyter_ddl.ledger.writer import LedgerWriter
from jupyter_ddl.store.connection import hold_name
from jupyter_ddl.store.locks import check_home
for take in (check_home, lambda: hold_name("a", lambda: False, 1), lambda: LedgerWriter.open(
    sys.argv[1])):
    try:
        take()
    except JupyterDDLError as error:
        print(error)
"""


@pytest.fixture
def ledger(home: Home) -> Path:
    del home
    run_dir("r1").mkdir()
    path = ledger_path("r1")
    with LedgerWriter.open(path, create=True) as writer:
        writer.append([submitted()])
    return path


@pytest.fixture
def sshfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All directories seem to lie where hosts do not see each other's locks."""
    table = tmp_path / "mounts"
    table.write_text("host: / fuse.sshfs rw 0 0\n")
    monkeypatch.setattr(mounts, "_MOUNTS", table)


@pytest.fixture
def hold_elsewhere(ledger: Path, tmp_path: Path) -> Callable[[str], None]:
    """Have another host open the ledger, and go as it is told."""

    def hold(how: str) -> None:
        command = [*on_another_host(tmp_path, "far"), *python(_HOLD, str(ledger))]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            with pytest.raises(LedgerBusyError, match="on far"):
                LedgerWriter.open(ledger)
            if how == "kill":
                process.kill()
            process.communicate(how)

    return hold


def test_without_locks_one_line_says_what_to_set(ledger: Path) -> None:
    told = subprocess.check_output([*without_locks(), *python(_CHECK, str(ledger))], text=True)
    lines = told.splitlines()
    assert ["JUPYTER_DDL_HOME" in line for line in lines] == [True, False, True]
    assert ["JUPYTER_RUNTIME_DIR" in line for line in lines] == [False, True, False]
    for line in lines:
        assert line.startswith("locking /")
        assert "No locks available" in line
        assert line.endswith("to a directory on a disk of this host [DDL-7002]")


_CONTROLLER = """
import os
from jupyter_ddl.controller import process
process.hold_name = lambda *_: os.open("/dev/null", os.O_RDWR)  # its directory has locks
process.main()
"""


def test_a_home_without_locks_is_refused_when_the_cluster_starts(home: Home) -> None:
    del home
    spec = msgspec.json.encode(ClusterSpec(name="a", n_workers=0))
    command = [*without_locks(), *python(_CONTROLLER)]
    done = subprocess.run(command, input=spec, stdout=subprocess.PIPE, timeout=120, check=False)
    assert done.returncode == 1
    told = msgspec.json.decode(done.stdout)
    assert told["error"] == "StorageError"
    assert "set JUPYTER_DDL_HOME to a directory" in told["message"]


def test_where_all_hosts_see_a_lock_having_it_is_enough(
    ledger: Path, hold_elsewhere: Callable[[str], None]
) -> None:
    hold_elsewhere("kill")
    LedgerWriter.open(ledger).close()


@pytest.mark.usefixtures("sshfs")
def test_what_another_host_may_still_write_is_not_taken_from_it(
    ledger: Path, hold_elsewhere: Callable[[str], None]
) -> None:
    hold_elsewhere("close")  # it has given up what it held
    LedgerWriter.open(ledger).close()
    hold_elsewhere("kill")
    before = ledger.read_bytes()
    for attempt in (lambda: LedgerWriter.open(ledger), lambda: remove_run("r1")):
        with pytest.raises(
            LedgerBusyError, match=r"on far \(.*on fuse.sshfs at / no host"
        ) as caught:
            attempt()
        assert f"delete {lock_path(ledger)} if that host is gone" in caught.value.message
    assert ledger.read_bytes() == before
    lock_path(ledger).unlink()  # as the message says
    LedgerWriter.open(ledger).close()


@pytest.mark.usefixtures("sshfs")
def test_what_was_left_by_this_host_is_taken_over(ledger: Path) -> None:
    here = this_holder()
    killed = msgspec.structs.replace(here.process, start_ticks=1)
    before_boot = msgspec.structs.replace(here.process, boot_id="another")
    renamed = msgspec.structs.replace(here, host="its former name")
    for note in (
        msgspec.structs.replace(here, process=killed),
        msgspec.structs.replace(renamed, process=killed),
        msgspec.structs.replace(here, process=before_boot),
    ):
        lock_path(ledger).write_bytes(msgspec.json.encode(note))
        LedgerWriter.open(ledger).close()
    of_its_name = msgspec.structs.replace(here, process=before_boot, machine="of another machine")
    lock_path(ledger).write_bytes(msgspec.json.encode(of_its_name))
    with pytest.raises(LedgerBusyError, match="delete"):
        LedgerWriter.open(ledger)


@pytest.fixture
def announced(home: Home) -> Holder:
    """A controller of another host has the name ``a``, by what its files say."""
    del home
    here = this_holder()
    process = msgspec.structs.replace(here.process, boot_id="another")
    write_connection(ConnectionInfo("a", "local", "/none", process, "1"))
    holder = msgspec.structs.replace(here, process=process, host="far")
    (runtime_dir() / "a.lock").write_bytes(msgspec.json.encode(holder))
    return holder


@pytest.mark.usefixtures("announced", "sshfs")
def test_a_name_that_another_host_may_have_is_left_to_it() -> None:
    assert read_connection("a") is None
    assert connection_path("a").exists()
    with pytest.raises(ClusterError, match=r"name 'a' is not free: process .* on far"):
        hold_name("a", lambda: False, 1.0)


@pytest.mark.usefixtures("announced")
def test_where_all_hosts_see_its_lock_it_is_free() -> None:
    assert read_connection("a") is None
    assert not connection_path("a").exists()
