"""The store of a rank group: where its ranks leave each other short messages.

Torch's own ``TCPStore`` listens on every interface and asks nobody who he is, and what lies in it
is unpickled.  Ranks of one host share a file in memory that has no name and no port; across hosts
the store listens on the one address by which the others know its host, and asks for the round's
token (:mod:`jupyter_ddl.ranks.token_store`).
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

from jupyter_ddl.errors import LaunchError
from jupyter_ddl.protocol.group import RankPlace
from jupyter_ddl.ranks.listeners import leave_open

__all__ = [
    "StoreFile",
    "free_port",
    "hold_port",
    "join_store",
    "join_store_at",
    "open_store",
    "open_store_at",
]

_FILE_NAME = "jupyter_ddl_store"


class StoreFile:
    """A file that the ranks of one host share; it goes with the last of their processes."""

    def __init__(self, path: str | None = None) -> None:
        self._directory: Path | None = None
        if path is None and hasattr(os, "memfd_create"):
            fd = os.memfd_create(_FILE_NAME)
            self.shared_path = f"/proc/{os.getpid()}/fd/{fd}"
        elif path is None:  # a system without files in memory
            self._directory = Path(tempfile.mkdtemp(prefix="jupyter_ddl-"))
            self.shared_path = str(self._directory / "store")
            fd = os.open(self.shared_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        else:
            self.shared_path = path
            fd = _opened(path)
        # Not by the shared path: it ends with rank 0, and the others may need the file for longer.
        self.path = f"/dev/fd/{fd}"

    def remove(self) -> None:
        """Remove it where it has a name."""
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)


def _opened(path: str) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise LaunchError(
            f"opening the store of this rank group at {path} failed: {error.strerror}; workers "
            f"with the same address must run in one container, as the same user"
        ) from error


def open_store(host: str, place: RankPlace, file: StoreFile | None) -> tuple[Any, int]:
    """Rank 0's store, and the port by which the others reach it (0: by the file)."""
    if file is not None:
        return _file_store(file, place), 0
    timeout = timedelta(seconds=place.timeout_s)
    from jupyter_ddl.ranks.token_store import StoreServer, TokenStore

    server = StoreServer(_bound(host, 0), place.token)
    return TokenStore(host, server.port, place.token, timeout), server.port


def open_store_at(address: str, token: str, timeout: timedelta) -> Any:
    """Rank 0's store at an address that the user's code names, for a group of its own.

    Raises
    ------
    LaunchError
        Somebody listens there, or it is not this host's.
    """
    from jupyter_ddl.ranks.token_store import StoreServer, TokenStore

    name, port = _parts(address)
    try:
        host = str(socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)[0][4][0])
        listener = _bound(host, port)
        server = StoreServer(listener, token)
    except OSError as error:
        raise LaunchError(
            f"rank 0 can't listen at {address}: {error.strerror}; "
            f"name another MASTER_ADDR or MASTER_PORT"
        ) from error
    leave_open(listener)
    return TokenStore(host, server.port, token, timeout)


def join_store_at(address: str, token: str, timeout: timedelta) -> Any:
    """The store that another process of this group has opened there as its rank 0."""
    from jupyter_ddl.ranks.token_store import TokenStore

    return TokenStore(*_parts(address), token, timeout)


def _parts(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not port.isdecimal():
        raise LaunchError(
            f"ranks can't meet at {address!r}: expected HOST:PORT; set MASTER_ADDR and MASTER_PORT"
        )
    return host.strip("[]"), int(port)


def join_store(address: str, place: RankPlace, file: StoreFile | None) -> Any:
    """The store that rank 0 has opened."""
    if file is not None:
        return _file_store(file, place)
    from jupyter_ddl.ranks.token_store import TokenStore

    host, _, port = address.rpartition(":")
    return TokenStore(host, int(port), place.token, timedelta(seconds=place.timeout_s))


def _file_store(file: StoreFile, place: RankPlace) -> Any:
    timeout = timedelta(seconds=place.timeout_s)
    if not place.gpus:
        from jupyter_ddl.ranks.file_store import FileStore

        return FileStore(file.path, timeout)
    # Torch's own: NCCL's threads may ask it in mid-training, whatever Python is doing then.
    import torch.distributed as dist

    store = dist.FileStore(file.path, -1)
    store.set_timeout(timeout)
    return store


def hold_port(host: str) -> socket.socket:
    """A socket that keeps a port for whoever opens it with ``SO_REUSEADDR``, as servers do."""
    return _bound(host, 0)


def free_port(host: str) -> int:
    """A port that is free now, for a framework that opens it itself."""
    with _bound(host, 0, reuse=False) as probe:
        return int(probe.getsockname()[1])


def _bound(host: str, port: int, *, reuse: bool = True) -> socket.socket:
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    if reuse:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError:
        bound.close()
        raise
    return bound
