"""Connection files: how a client finds a controller, and knows that it is still the same one.

``<runtime>/<cluster>.json``, mode 0600, is written when the cluster is ready and removed when the
controller ends.  A file whose process is gone (other start time or boot) is stale and is ignored.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

import msgspec

from jupyter_ddl.store.paths import private_dir, runtime_dir
from jupyter_ddl.store.processes import ProcessIdentity, is_alive

__all__ = [
    "ConnectionInfo",
    "connection_path",
    "list_connections",
    "read_connection",
    "socket_path",
    "write_connection",
]

_MAX_SOCKET_PATH = 100
"""Unix socket addresses hold 107 bytes; Linux refuses longer ones."""


class ConnectionInfo(msgspec.Struct, frozen=True):
    """What a client needs to reach a controller."""

    name: str
    backend: str
    socket: str
    process: ProcessIdentity
    version: str
    """Of this package, at the controller."""


def connection_path(name: str) -> Path:
    return runtime_dir() / f"{name}.json"


def socket_path(name: str) -> Path:
    """A socket path in a 0700 directory, short enough for the system."""
    path = runtime_dir() / f"{name}.sock"
    if len(os.fsencode(path)) <= _MAX_SOCKET_PATH:
        return path
    directory = Path(tempfile.mkdtemp(prefix=f"jupyter_ddl-{os.getuid()}-"))
    return private_dir(directory) / f"{name[:40]}.sock"


def write_connection(info: ConnectionInfo) -> Path:
    """Write atomically; a reader sees a whole file or none."""
    path = connection_path(info.name)
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(info)))
    temporary.replace(path)
    return path


def read_connection(name: str) -> ConnectionInfo | None:
    """The live controller of this name, or None; a stale file is removed."""
    path = connection_path(name)
    try:
        info = msgspec.json.decode(path.read_bytes(), type=ConnectionInfo)
    except (FileNotFoundError, msgspec.DecodeError):
        return None
    if is_alive(info.process):
        return info
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
        Path(info.socket).unlink()
    return None


def list_connections() -> list[ConnectionInfo]:
    """All live controllers of this user, by name."""
    names = sorted(path.stem for path in runtime_dir().glob("*.json"))
    return [info for name in names if (info := read_connection(name)) is not None]
