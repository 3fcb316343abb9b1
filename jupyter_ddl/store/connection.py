"""Connection files: how a client finds a controller, and knows that it is still the same one.

``<runtime>/<cluster>.json``, mode 0600, is written when the cluster is ready and removed when the
controller ends.  A file whose controller is gone is stale and is removed: one that neither is seen
to run nor holds its name.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from jupyter_ddl.errors import ClusterError
from jupyter_ddl.protocol.reading import json_decoder
from jupyter_ddl.store.atomic import write_whole
from jupyter_ddl.store.locks import holder_of, note_holder, read_note, rival_of, rivalry, try_lock
from jupyter_ddl.store.paths import private_dir, runtime_dir, runtime_path
from jupyter_ddl.store.processes import ProcessIdentity, boot_id, is_alive, is_gone

__all__ = [
    "ConnectionInfo",
    "connection_path",
    "free_name",
    "hold_name",
    "holds_name",
    "is_lost",
    "list_connections",
    "read_connection",
    "remove_scratch",
    "remove_socket",
    "scratch_path",
    "socket_path",
    "write_connection",
]


# One controller per cluster name: a lock that lives as long as its process.

_POLL_S = 0.05
_NOTE_S = 0.5
_SETTING = "JUPYTER_RUNTIME_DIR"


def hold_name(name: str, is_ready: Callable[[], bool], timeout_s: float) -> int:
    """Hold a cluster's name for the life of this process.

    A holder that is starting or ending is waited for; one that is ready is not.

    Parameters
    ----------
    is_ready : callable
        Whether the controller that holds the name can be used.

    Raises
    ------
    ClusterError
        Another controller has the name.
    StorageError
        The file system of the runtime directory has no locks.
    """
    fd, path = _open_lock(name), _lock_path(name)
    began_s = time.monotonic()
    try:
        while not try_lock(fd, path, _SETTING):
            # Who has just got the lock may not have put its note in the place of the one before.
            if time.monotonic() > began_s + _NOTE_S and (host := _other_host(path)):
                raise ClusterError(
                    f"a controller named {name!r} runs on {host}, which shares {path.parent}; "
                    f"give another --name, or set {_SETTING} to a directory of this host"
                )
            if is_ready() or time.monotonic() > began_s + timeout_s:
                raise ClusterError(
                    f"a controller named {name!r} is already running; `%cluster attach {name}`, "
                    f"or give another --name"
                )
            time.sleep(_POLL_S)
        if rival := rival_of(path):
            raise ClusterError(f"the name {name!r} is not free: {rivalry(path, rival)}")
    except BaseException:
        os.close(fd)
        raise
    note_holder(fd)
    return fd


@contextlib.contextmanager
def free_name(name: str) -> Iterator[bool]:
    """Within this, nobody has the name if it yields True; False: a controller holds it."""
    fd = _open_lock(name)
    try:
        yield try_lock(fd, _lock_path(name), _SETTING)
    finally:
        os.close(fd)


def holds_name(process: ProcessIdentity, name: str) -> bool:
    """Whether this process holds a cluster's name, wherever it runs."""
    holder = holder_of(runtime_path() / f"{name}.lock")
    return holder is not None and holder.process == process


def is_lost(process: ProcessIdentity) -> bool:
    """Whether a controller is known to run no more: its lock is asked, too."""
    return is_gone(process) and not any(holds_name(process, name) for name in _names(".lock"))


def _other_host(path: Path) -> str:
    """The host of a lock's holder if it is another one, or was before it started anew."""
    holder = read_note(path)
    return "" if holder is None or holder.process.boot_id == boot_id() else holder.host


def _open_lock(name: str) -> int:
    return os.open(_lock_path(name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _lock_path(name: str) -> Path:
    return runtime_dir() / f"{name}.lock"


_MAX_SOCKET_PATH = 100
"""Unix socket addresses hold 107 bytes; Linux refuses longer ones."""
_SOCKET_NAME = 24
"""Room for what :mod:`multiprocessing` calls a socket."""


class ConnectionInfo(msgspec.Struct, frozen=True):
    """What a client needs to reach a controller."""

    name: str
    backend: str
    socket: str
    process: ProcessIdentity
    version: str
    """Of this package, at the controller."""
    shares_files: bool = True
    """Whether its workers see this host's files, as its backend says."""


def connection_path(name: str) -> Path:
    """The file of a cluster; looking for it makes no directory."""
    return runtime_path() / f"{name}.json"


def socket_path(name: str) -> Path:
    """A socket path in a 0700 directory, short enough for the system."""
    path = runtime_dir() / f"{name}.sock"
    if len(os.fsencode(path)) <= _MAX_SOCKET_PATH:
        return path
    directory = Path(tempfile.mkdtemp(prefix=_own_prefix()))
    return private_dir(directory) / f"{name[:40]}.sock"


def scratch_path(name: str) -> Path | None:
    """Where a controller keeps what nobody needs behind it; None: its sockets had too long names.

    The directory of the system for such things keeps what a killed process has put there.
    """
    path = runtime_path() / f"{name}.tmp"
    return path if len(os.fsencode(path)) <= _MAX_SOCKET_PATH - _SOCKET_NAME else None


def remove_scratch(name: str) -> None:
    """Only for who holds the cluster's name, or knows that nobody does."""
    shutil.rmtree(runtime_path() / f"{name}.tmp", ignore_errors=True)


def remove_socket(path: Path) -> None:
    """Remove a socket, and the directory that :func:`socket_path` made for it."""
    path.unlink(missing_ok=True)
    if path.parent.name.startswith(_own_prefix()):
        with contextlib.suppress(OSError):  # somebody has put something in
            path.parent.rmdir()


def _own_prefix() -> str:
    return f"jupyter_ddl-{os.getuid()}-"


def write_connection(info: ConnectionInfo) -> Path:
    """Write atomically; a reader sees a whole file or none."""
    path = runtime_dir() / connection_path(info.name).name
    write_whole(path, msgspec.json.format(msgspec.json.encode(info)))
    return path


def read_connection(name: str) -> ConnectionInfo | None:
    """The live controller of this name on this host, or None; a stale file is removed."""
    info = _read(name)
    if info is None or is_alive(info.process):
        return info
    if holds_name(info.process, name):
        # The socket of another host can't be reached, though its directory is shared.
        return info if info.process.boot_id == boot_id() else None
    with free_name(name) as is_free:
        # A controller that is starting holds the name: the file may be its own by now.
        if is_free and not rival_of(_lock_path(name)) and _read(name) == info:
            connection_path(name).unlink(missing_ok=True)
            remove_socket(Path(info.socket))
            remove_scratch(name)
    return None


_DECODER = json_decoder(ConnectionInfo)


def _read(name: str) -> ConnectionInfo | None:
    try:
        return _DECODER.decode(connection_path(name).read_bytes())
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def list_connections() -> list[ConnectionInfo]:
    """All live controllers of this user, by name."""
    return [info for name in _names(".json") if (info := read_connection(name)) is not None]


def _names(ending: str) -> list[str]:
    """Names of clusters that have such a file.

    Raises
    ------
    OSError
        The directory can't be read now; ``glob`` would say that there are none.
    """
    try:
        return sorted(each.stem for each in runtime_path().iterdir() if each.suffix == ending)
    except FileNotFoundError:
        return []
