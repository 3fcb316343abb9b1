"""Which process is meant: a pid alone may have been given to another one since."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

import msgspec
import psutil

__all__ = [
    "OWNER_VARIABLE",
    "ProcessIdentity",
    "boot_id",
    "end_process",
    "is_alive",
    "owned_processes",
    "this_process",
]

OWNER_VARIABLE = "JUPYTER_DDL_OWNER"
"""Environment variable that every process below a controller carries."""
_POLL_S = 0.05


class ProcessIdentity(msgspec.Struct, frozen=True):
    """A process of one boot of one host."""

    pid: int
    started_at_s: float
    """As the kernel tells it, in Unix seconds (0.01 s resolution)."""
    boot_id: str


def boot_id() -> str:
    """Changes with every boot; empty where the system has none."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return str(psutil.boot_time())


def this_process() -> ProcessIdentity:
    process = psutil.Process()
    return ProcessIdentity(process.pid, process.create_time(), boot_id())


def is_alive(identity: ProcessIdentity) -> bool:
    """Whether exactly this process still runs (a zombie does not)."""
    if identity.boot_id != boot_id():
        return False
    try:
        process = psutil.Process(identity.pid)
        same = abs(process.create_time() - identity.started_at_s) < 1.0
        return same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def end_process(identity: ProcessIdentity, grace_s: float) -> None:
    """Have a process end: by SIGTERM, and when it still runs after the grace by SIGKILL.

    Returns when SIGTERM was enough, or at once after SIGKILL.
    """
    _send(identity, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while is_alive(identity):
        if time.monotonic() > deadline:
            _send(identity, signal.SIGKILL)
            return
        time.sleep(_POLL_S)


def _send(identity: ProcessIdentity, signum: signal.Signals) -> None:
    if is_alive(identity):
        with contextlib.suppress(ProcessLookupError):
            os.kill(identity.pid, signum)


def owned_processes() -> dict[str, list[psutil.Process]]:
    """This user's processes by the owner token in their environment, this process excluded."""
    found: dict[str, list[psutil.Process]] = {}
    for process in psutil.process_iter():
        if process.pid == os.getpid():
            continue
        with contextlib.suppress(psutil.Error, OSError):
            token = process.environ().get(OWNER_VARIABLE)
            if token:
                found.setdefault(token, []).append(process)
    return found
