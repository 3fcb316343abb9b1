"""Which process is meant, when pids are given out again."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import msgspec
import psutil
import pytest

from jupyter_ddl.store.processes import (
    OWNER_VARIABLE,
    ProcessIdentity,
    boot_id,
    is_alive,
    pids_by,
    this_process,
)
from tests.until import until


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env={OWNER_VARIABLE: "7:1.00"}
    )
    yield process
    process.kill()
    process.communicate()


def test_this_process_is_alive_and_no_other_of_its_pid_is() -> None:
    me = this_process()
    assert is_alive(me)
    assert not is_alive(msgspec.structs.replace(me, started_at_s=me.started_at_s - 2.0))
    assert not is_alive(msgspec.structs.replace(me, boot_id="another boot"))


def test_a_zombie_is_not_alive(child: subprocess.Popen[bytes]) -> None:
    process = psutil.Process(child.pid)
    identity = ProcessIdentity(child.pid, process.create_time(), boot_id())
    assert is_alive(identity)
    child.kill()
    until(lambda: process.status() == psutil.STATUS_ZOMBIE, 5.0)
    assert not is_alive(identity)
    child.wait()
    assert not is_alive(identity)


def test_an_identity_survives_json() -> None:
    me = this_process()
    assert msgspec.json.decode(msgspec.json.encode(me), type=ProcessIdentity) == me


def test_processes_are_found_by_the_token_of_their_owner(child: subprocess.Popen[bytes]) -> None:
    assert until(lambda: pids_by(OWNER_VARIABLE).get("7:1.00"), 5.0) == [child.pid]


def test_a_token_names_the_very_process_and_nothing_else_is_one() -> None:
    me = this_process()
    again = ProcessIdentity.of_token(me.token)
    assert again.token == me.token
    assert is_alive(again)
    assert not is_alive(ProcessIdentity.of_token(f"{me.pid}:{me.started_at_s - 5:.2f}"))
    for text in ("", "7", "test", "7:x"):
        with pytest.raises(ValueError, match=r"invalid literal|could not convert"):
            ProcessIdentity.of_token(text)
