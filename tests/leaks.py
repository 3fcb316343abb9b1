"""Finds what a test left behind: processes, connection files, half-written blobs, threads."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.until import PATIENCE_S

_POLL_S = 0.05


@dataclass(frozen=True)
class Home:
    """The directories that a test has for itself.

    Attributes
    ----------
    root : Path
        Everything below.
    data : Path
        ``JUPYTER_DDL_HOME``: runs and blobs.
    runtime : Path
        ``JUPYTER_RUNTIME_DIR``: connection files and sockets.
    memory : Path
        ``JUPYTER_DDL_MEMORY_DIR``: blobs in shared memory.
    work : Path
        Working directory for notebooks.
    """

    root: Path
    data: Path
    runtime: Path
    memory: Path
    work: Path

    def variables(self) -> dict[str, str]:
        """The environment that makes a process live in this home."""
        return {
            "JUPYTER_DDL_HOME": str(self.data),
            "JUPYTER_RUNTIME_DIR": str(self.runtime),
            "JUPYTER_DDL_MEMORY_DIR": str(self.memory),
            "IPYTHONDIR": str(self.root / "ipython"),
            "JUPYTER_CONFIG_DIR": str(self.root / "config"),
            "JUPYTER_DATA_DIR": str(self.root / "share"),
        }


@contextlib.contextmanager
def new_home() -> Iterator[Home]:
    """Make a home, and remove it afterwards.

    Not below pytest's own directory: the addresses of Unix sockets hold 107 bytes only.
    """
    root = Path(tempfile.mkdtemp(prefix="ddl-test-"))
    shm = Path("/dev/shm")
    memory = Path(tempfile.mkdtemp(prefix="ddl-test-", dir=shm if shm.is_dir() else root))
    home = Home(root, root / "home", root / "runtime", memory, root / "work")
    home.work.mkdir()
    try:
        yield home
    finally:
        shutil.rmtree(memory, ignore_errors=True)
        shutil.rmtree(root, ignore_errors=True)


def processes_of(home: Home) -> list[psutil.Process]:
    """Processes that were started in a home: controllers, workers, ranks, kernels and theirs."""
    mark = str(home.runtime)
    found = []
    for process in psutil.process_iter():
        if process.pid == os.getpid():
            continue
        with contextlib.suppress(psutil.Error, OSError):
            in_home = process.environ().get("JUPYTER_RUNTIME_DIR") == mark
            if in_home and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def leftovers_of(home: Home) -> list[str]:
    """What is left of a test, one line each; waits for what is just ending."""
    deadline = time.monotonic() + PATIENCE_S
    while (found := _leftovers(home)) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return found


def end_processes(home: Home) -> None:
    """Kill what still runs, so that one leaking test does not disturb the next ones."""
    for process in processes_of(home):
        with contextlib.suppress(psutil.Error):
            process.kill()


def _leftovers(home: Home) -> list[str]:
    ours = home.runtime / "jupyter_ddl"
    return [
        *(_described(process) for process in processes_of(home)),
        *(f"connection file {path}" for path in ours.glob("*.json")),
        *(f"socket {path}" for path in ours.glob("*.sock")),
        *(f"directory {path}" for path in ours.glob("*.tmp")),
        *(f"half-written blob {path}" for path in home.memory.glob(".partial-*")),
        *(f"half-written blob {path}" for path in home.data.glob("blobs/.partial-*")),
        *(f"thread {thread.name}" for thread in threading.enumerate() if _is_ours(thread)),
    ]


def _is_ours(thread: threading.Thread) -> bool:
    return thread.name.startswith("jupyter_ddl")


def _described(process: psutil.Process) -> str:
    try:
        return f"process {process.pid}: {' '.join(process.cmdline())[:120]}"
    except psutil.Error:
        return f"process {process.pid}"
