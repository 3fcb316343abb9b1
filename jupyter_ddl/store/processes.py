"""Finds processes of ours by what their environment says, and ends them.

Every process below a worker has ``JUPYTER_DDL_OWNER`` (the cluster) and ``JUPYTER_DDL_ZYGOTE``
in its environment, and what a rank has started by exec has ``JUPYTER_DDL_RANK`` as well, so that a
child in a session of its own is found after its parent has died.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil

__all__ = [
    "OWNER_VARIABLE",
    "RANK_VARIABLE",
    "ZYGOTE_VARIABLE",
    "ProcessIdentity",
    "boot_id",
    "child_pids",
    "end_process",
    "environment_value",
    "is_alive",
    "kill_leftovers",
    "pids_by",
    "this_process",
]


# Which process is meant: a pid alone may have been given to another one since.

OWNER_VARIABLE = "JUPYTER_DDL_OWNER"
"""Environment variable that every process below a controller carries: the controller's token."""
_POLL_S = 0.05


class ProcessIdentity(msgspec.Struct, frozen=True):
    """A process of one boot of one host."""

    pid: int
    started_at_s: float
    """As the kernel tells it, in Unix seconds (0.01 s resolution)."""
    boot_id: str

    @property
    def token(self) -> str:
        """The process in a few characters, for those of the same boot of the same host."""
        return f"{self.pid}:{self.started_at_s:.2f}"

    @classmethod
    def of_token(cls, token: str) -> ProcessIdentity:
        """The process that a token of this host is of.  Raises ValueError if it is not one."""
        pid, _, started = token.partition(":")
        return cls(int(pid), float(started), boot_id())


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


ZYGOTE_VARIABLE = "JUPYTER_DDL_ZYGOTE"
RANK_VARIABLE = "JUPYTER_DDL_RANK"


def environment_value(pid: int, variable: str) -> str | None:
    """A variable as it was when the process was started; None if unset or not readable."""
    try:
        entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    prefix = variable.encode() + b"="
    for entry in entries:
        if entry.startswith(prefix):
            return entry[len(prefix) :].decode(errors="replace")
    return None


def _all_pids() -> Iterator[int]:
    try:
        names = [entry.name for entry in Path("/proc").iterdir()]
    except OSError:
        return
    yield from (int(name) for name in names if name.isdecimal())


def child_pids() -> list[int]:
    """Children of this process, adopted ones included."""
    me = os.getpid()
    try:
        return [int(pid) for pid in Path(f"/proc/{me}/task/{me}/children").read_text().split()]
    except OSError:  # a kernel without CONFIG_PROC_CHILDREN
        return [pid for pid in _all_pids() if _parent_of(pid) == me]


def _parent_of(pid: int) -> int | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    # The command's name stands in parentheses and may contain spaces.
    return int(stat.rpartition(")")[2].split()[1])


def pids_by(variable: str) -> dict[str, list[int]]:
    """Other processes of this user by the value of a variable that they were started with."""
    found: dict[str, list[int]] = {}
    me = os.getpid()
    for pid in _all_pids():
        value = None if pid == me else environment_value(pid, variable)
        if value:
            found.setdefault(value, []).append(pid)
    return found


def kill_leftovers(variable: str, value: str) -> list[int]:
    """Send SIGKILL to all processes with ``variable=value``; return their pids."""
    pids = pids_by(variable).get(value, [])
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return pids
