"""Paths of this user's runs, blobs and connection files.

``JUPYTER_DDL_HOME`` moves the runs and blobs; connection files lie in Jupyter's runtime directory.
Large blobs lie in the user's directory in ``/dev/shm``, those of each home apart, unless
``JUPYTER_DDL_MEMORY_DIR`` says where.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
from pathlib import Path

import msgspec
from jupyter_core.paths import jupyter_data_dir, jupyter_runtime_dir

from jupyter_ddl.errors import ClusterError, RunNotFoundError
from jupyter_ddl.protocol.names import is_file_name
from jupyter_ddl.protocol.reading import from_json
from jupyter_ddl.store.atomic import replacing, write_whole

__all__ = [
    "COPY_NOTE",
    "LEDGER",
    "RUN_FOLDERS",
    "blob_dirs",
    "forget_memory",
    "forgotten_memory",
    "home_dir",
    "home_id",
    "ledger_path",
    "memory_blob_dir",
    "private_dir",
    "run_dir",
    "runs_dir",
    "runtime_dir",
    "runtime_path",
]


LEDGER = "ledger.ddl"
"""Name of a run's ledger in its directory."""
COPY_NOTE = "copy.json"
"""In the directory of a run that is a copy: of which cluster, and how far it goes."""
RUN_FOLDERS = ("logs", "checkpoints", "values")
"""Below a run's directory, made with it."""
_ID = re.compile(r"[0-9a-f]{16}")


def private_dir(path: Path) -> Path:
    """Create ``path`` readable by its owner only, whatever the umask, and return it.

    So is what is missing above it.
    """
    if not path.is_dir():
        private_dir(path.parent)
        try:
            path.mkdir(mode=0o700)
            path.chmod(0o700)
        except FileExistsError:  # somebody was faster, or it is a file
            if not path.is_dir():
                raise
    return path


def home_dir() -> Path:
    """Directory of everything that outlives a cluster."""
    configured = os.environ.get("JUPYTER_DDL_HOME")
    path = Path(configured) if configured else Path(jupyter_data_dir()) / "jupyter_ddl"
    owner = private_dir(path).stat().st_uid
    if owner != os.getuid() and os.getuid() != 0:
        # What lies there is executed: values are pickles, programs are code.
        raise ClusterError(
            f"the folder of runs {path} belongs to another user (uid {owner}, this is "
            f"{os.getuid()}); set JUPYTER_DDL_HOME to a folder of your own"
        )
    return path


def home_id() -> str:
    """One word for this home, wherever it is mounted; two containers' homes have two."""
    path = home_dir() / "id"
    found = _read_id(path)
    if found is None:
        draft = path.with_name(f".id-{os.urandom(8).hex()}")
        with replacing(draft, is_synced=True) as file:
            file.write(os.urandom(8).hex().encode())
        try:
            os.link(draft, path)
        except OSError:  # another process was first; or it was damaged, or there are no hard links
            if _read_id(path) is None:
                draft.replace(path)
        draft.unlink(missing_ok=True)
        found = path.read_text()
    return found


def _read_id(path: Path) -> str | None:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        text = path.read_text()
        return text if _ID.fullmatch(text) else None
    return None


def runtime_path() -> Path:
    """Where connection files and sockets lie; it need not exist."""
    return Path(jupyter_runtime_dir()) / "jupyter_ddl"


def runtime_dir() -> Path:
    """Directory of connection files and sockets (0700), made if it is missing."""
    path = private_dir(runtime_path())
    path.chmod(0o700)
    return path


def runs_dir() -> Path:
    return private_dir(home_dir() / "runs")


def run_dir(run_id: str) -> Path:
    """Directory of one run; it need not exist.

    Raises
    ------
    RunNotFoundError
        The id is none, and would lead elsewhere.
    """
    if not is_file_name(run_id):
        raise RunNotFoundError(f"{run_id[:64]!r} is not the id of a run; `%runs` lists them")
    return runs_dir() / run_id


def ledger_path(run_id: str) -> Path:
    return run_dir(run_id) / LEDGER


def memory_blob_dir() -> Path | None:
    """Shared-memory directory for large blobs, or None where the host has none.

    A file there is one copy in memory for every process of the host, and writing
    1 GB takes 0.3 s against 2.6 s on a disk.
    """
    shm = Path("/dev/shm")
    if not (shm.is_dir() and os.access(shm, os.W_OK)):
        return None
    configured = os.environ.get("JUPYTER_DDL_MEMORY_DIR")
    if configured:
        return _own_dir(Path(configured))
    of_user = _own_dir(shm / f"jupyter_ddl-{os.getuid()}")
    if of_user is None:
        return None
    # Apart from other homes: nobody there knows which of these blobs are still needed.
    found = _own_dir(of_user / home_id())
    note = of_user / f"{home_id()}{_ORIGIN}"
    if found is not None and not note.exists():
        origin = _Origin(str(home_dir().absolute()), _view())
        write_whole(note, msgspec.json.encode(origin))
    return found


_ORIGIN = ".home"
"""Ending of the note beside a home's directory in shared memory."""


class _Origin(msgspec.Struct, frozen=True):
    """Which home has a directory in shared memory."""

    home: str
    view: int
    """Mount namespace in which the path means that home."""


def _view() -> int:
    try:
        return Path("/proc/self/ns/mnt").stat().st_ino
    except OSError:
        return 0


def forgotten_memory() -> list[Path]:
    """Directories of shared memory whose homes were deleted, as far as that is seen from here.

    A home that has its path in another container may still be there.
    """
    memory = memory_blob_dir()
    found = []
    for note in memory.parent.glob(f"*{_ORIGIN}") if memory is not None else ():
        with contextlib.suppress(OSError, msgspec.DecodeError):
            origin = from_json(note.read_bytes(), _Origin)
            name = note.stem
            is_here = origin.view == _view() != 0 and _ID.fullmatch(name) is not None
            if is_here and _read_id(Path(origin.home) / "id") != name:
                found.append(note.with_name(name))
    return found


def forget_memory(directory: Path) -> None:
    """Remove a home's directory in shared memory."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.with_name(directory.name + _ORIGIN).unlink(missing_ok=True)


def _own_dir(path: Path) -> Path | None:
    """A private directory, made if it is missing; None where it can't be had."""
    try:
        private_dir(path)
        owner = path.lstat()
    except OSError:
        return None
    # Another user may have made this name first, or a link to a folder of ours that holds something
    # else; then it is not ours to trust.
    if not stat.S_ISDIR(owner.st_mode) or owner.st_uid != os.getuid() or owner.st_mode & 0o077:
        return None
    return path


def blob_dirs() -> tuple[Path, ...]:
    """Directories that may hold a blob, the first one preferred for writing."""
    disk = private_dir(home_dir() / "blobs")
    memory = memory_blob_dir()
    return (disk,) if memory is None else (memory, disk)
