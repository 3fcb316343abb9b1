"""Connection files: found while their controller lives, removed only when nobody uses the name."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from jupyter_ddl.errors import ClusterError
from jupyter_ddl.store.connection import (
    ConnectionInfo,
    connection_path,
    free_name,
    hold_name,
    is_lost,
    list_connections,
    read_connection,
    remove_socket,
    socket_path,
    write_connection,
)
from jupyter_ddl.store.locks import Holder
from jupyter_ddl.store.paths import runtime_dir
from jupyter_ddl.store.processes import is_gone, this_process
from tests.leaks import Home


def info_of(name: str) -> ConnectionInfo:
    return ConnectionInfo(name, "local", str(socket_path(name)), this_process(), "1")


def stale(info: ConnectionInfo) -> ConnectionInfo:
    process = msgspec.structs.replace(info.process, start_ticks=1)
    return msgspec.structs.replace(info, process=process)


@pytest.fixture
def held(home: Home) -> Iterator[int]:
    """The name ``a``, held as by a controller."""
    fd = hold_name("a", lambda: False, 1.0)
    yield fd
    os.close(fd)


def test_live_controllers_are_listed_by_name(home: Home) -> None:
    for name in ("b", "a"):
        path = write_connection(info_of(name))
        assert path.stat().st_mode & 0o777 == 0o600
    assert [info.name for info in list_connections()] == ["a", "b"]
    assert read_connection("c") is None
    assert sorted(path.name for path in path.parent.glob("*.json")) == ["a.json", "b.json"]


def test_a_stale_file_goes_with_its_socket(home: Home) -> None:
    info = stale(info_of("a"))
    write_connection(info)
    Path(info.socket).touch()
    assert read_connection("a") is None
    assert not connection_path("a").exists()
    assert not Path(info.socket).exists()


def test_who_holds_the_name_is_alive_whatever_else_is_seen_of_it(held: int) -> None:
    info = stale(info_of("a"))
    write_connection(info)
    holder = Holder(info.process, "host", "", 0.0)
    os.pwrite(held, msgspec.json.encode(holder) + b" " * 200, 0)  # as the holder's own note
    assert is_gone(info.process)
    assert read_connection("a") == info
    assert not is_lost(info.process)
    fcntl.flock(held, fcntl.LOCK_UN)
    assert is_lost(info.process)
    assert read_connection("a") is None
    assert not connection_path("a").exists()


def test_a_stale_file_stays_while_a_controller_of_that_name_starts(held: int) -> None:
    write_connection(stale(info_of("a")))
    assert read_connection("a") is None
    assert connection_path("a").exists()  # its controller writes another one in a moment


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"name": 1}', b"\xff"])
def test_a_file_that_is_none_is_no_connection(home: Home, text: bytes) -> None:
    (runtime_dir() / "a.json").write_bytes(text)
    assert read_connection("a") is None
    assert list_connections() == []


def test_a_name_has_one_holder(held: int) -> None:
    with pytest.raises(ClusterError, match="'a' is already running"):
        hold_name("a", lambda: True, 60.0)
    with pytest.raises(ClusterError, match="'a' is already running"):
        hold_name("a", lambda: False, 0.1)
    with free_name("a") as is_free:
        assert not is_free
    os.close(hold_name("b", lambda: True, 1.0))


def test_a_holder_that_ends_is_waited_for(home: Home) -> None:
    holder = hold_name("a", lambda: False, 1.0)
    asked: list[bool] = []

    def is_ready() -> bool:
        if len(asked) == 2:
            os.close(holder)
        asked.append(True)
        return False

    os.close(hold_name("a", is_ready, 10.0))
    assert len(asked) == 3


def test_a_socket_below_a_long_path_lies_in_a_private_directory_of_its_own(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(home.root / ("long" * 30)))
    path = socket_path("a")
    assert len(os.fsencode(path)) <= 100
    assert path.parent.stat().st_mode & 0o777 == 0o700
    path.touch()
    remove_socket(path)
    assert not path.parent.exists()
