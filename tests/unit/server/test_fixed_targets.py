"""A browser names clusters; it never chooses where the server connects to."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import msgspec
import pytest

from jupyter_ddl.backends.base import check_size
from jupyter_ddl.errors import ClusterError
from jupyter_ddl.protocol.requests import GetStatus
from jupyter_ddl.protocol.view_messages import StartCluster
from jupyter_ddl.server.links import Links
from jupyter_ddl.server.requests import _spec
from jupyter_ddl.store.connection import ConnectionInfo, connection_path, write_connection
from jupyter_ddl.store.paths import runtime_dir
from jupyter_ddl.store.processes import this_process

NAMES = ["../local", "local.json", "/tmp/x.sock", "http://127.0.0.1:80", "", "..", "a\x00b", "*"]


def refused(name: str) -> ClusterError:
    async def ask() -> None:
        links = Links()
        try:
            await links.ask(name, GetStatus())
        finally:
            await links.close()

    with pytest.raises(ClusterError) as caught:
        asyncio.run(ask())
    return caught.value


def pretend(name: str, socket: str) -> None:
    """A connection file as if this process were a controller."""
    write_connection(ConnectionInfo(name, "local", socket, this_process(), "0.1.0"))


@pytest.mark.parametrize("name", NAMES)
def test_only_names_of_connection_files_are_looked_up(name: str, home: Any) -> None:
    pretend("local", str(runtime_dir() / "local.sock"))
    assert "no cluster named" in refused(name).message
    connection_path("local").unlink()


def test_a_socket_of_another_user_is_not_connected_to(
    home: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel's own answer is what counts; only who we are is pretended."""
    connected: list[Any] = []
    path = str(runtime_dir() / "other.sock")

    async def listen() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connected.append(writer)
            writer.close()

        server = await asyncio.start_unix_server(serve, path=path)
        links = Links()
        monkeypatch.setattr(os, "getuid", lambda: 12345)
        async with server:
            with pytest.raises(ClusterError, match="no cluster named 'other' is running"):
                await links.ask("other", GetStatus())
        await links.close()

    pretend("other", path)
    asyncio.run(listen())
    monkeypatch.undo()
    assert connected == []


def test_a_start_from_a_form_has_bounds() -> None:
    good = StartCluster(1, name="panel", n_workers=4, memory_per_worker_bytes=2 << 30)
    check_size(_spec(good))
    assert _spec(good).n_workers == 4
    bad: list[dict[str, Any]] = [
        {"n_workers": -1},
        {"n_workers": 10**9},
        {"cpus_per_worker": 0},
        {"memory_per_worker_bytes": 1},
        {"idle_timeout_s": float("nan")},
        {"idle_timeout_s": 0.0},
        {"max_age_s": float("inf")},
    ]
    for fields in bad:
        with pytest.raises(ClusterError, match="expected "):
            check_size(_spec(msgspec.structs.replace(good, **fields)))
