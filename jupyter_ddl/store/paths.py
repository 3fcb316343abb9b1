"""Paths of this user's runs, blobs and connection files.

``JUPYTER_DDL_HOME`` moves the runs and blobs; connection files lie in Jupyter's runtime directory.
Large blobs lie in the user's directory in ``/dev/shm``, those of each home apart, unless
``JUPYTER_DDL_MEMORY_DIR`` says where.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from urllib.parse import quote, unquote

from jupyter_core.paths import jupyter_data_dir, jupyter_runtime_dir

__all__ = [
    "blob_dirs",
    "home_dir",
    "home_of_memory",
    "ledger_path",
    "memory_blob_dir",
    "private_dir",
    "run_dir",
    "runs_dir",
    "runtime_dir",
    "runtime_path",
]


_LONGEST_NAME = 200
"""Of a directory; most file systems allow 255 bytes."""


def private_dir(path: Path) -> Path:
    """Create ``path`` readable by its owner only, and return it."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def home_dir() -> Path:
    """Directory of everything that outlives a cluster."""
    configured = os.environ.get("JUPYTER_DDL_HOME")
    return private_dir(Path(configured) if configured else Path(jupyter_data_dir()) / "jupyter_ddl")


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
    """Directory of one run; it need not exist."""
    return runs_dir() / run_id


def ledger_path(run_id: str) -> Path:
    return run_dir(run_id) / "ledger.ddl"


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
    # Apart from other homes: nobody there knows which of these blobs are still needed.
    return None if of_user is None else _own_dir(of_user / _name_of_home())


def home_of_memory(directory: Path) -> Path | None:
    """The home whose large blobs lie in a directory of shared memory; None where it is unknown."""
    path = unquote(directory.name)
    return Path(path) if path.startswith("/") else None


def _name_of_home() -> str:
    path = str(home_dir().absolute())
    name = quote(path, safe="")
    return name if len(name) <= _LONGEST_NAME else hashlib.sha256(path.encode()).hexdigest()


def _own_dir(path: Path) -> Path | None:
    """A private directory, made if it is missing; None where it can't be had."""
    try:
        private_dir(path)
        owner = path.stat()
    except OSError:
        return None
    # Another user may have made this name first; then it is not ours to trust.
    if owner.st_uid != os.getuid() or owner.st_mode & 0o077:
        return None
    return path


def blob_dirs() -> tuple[Path, ...]:
    """Directories that may hold a blob, the first one preferred for writing."""
    disk = private_dir(home_dir() / "blobs")
    memory = memory_blob_dir()
    return (disk,) if memory is None else (memory, disk)
