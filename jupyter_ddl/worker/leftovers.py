"""Finds processes of ours by what their environment says, and ends them.

Every process below a worker has ``JUPYTER_DDL_OWNER`` (the cluster) and ``JUPYTER_DDL_ZYGOTE``
in its environment, and what a rank has started by exec has ``JUPYTER_DDL_RANK`` as well, so that a
child in a session of its own is found after its parent has died.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

__all__ = [
    "OWNER_VARIABLE",
    "RANK_VARIABLE",
    "ZYGOTE_VARIABLE",
    "child_pids",
    "environment_value",
    "kill_leftovers",
    "pids_with",
]

OWNER_VARIABLE = "JUPYTER_DDL_OWNER"
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


def pids_with(variable: str, value: str) -> list[int]:
    """Other processes of this user that were started with ``variable=value``."""
    me = os.getpid()
    return [pid for pid in _all_pids() if pid != me and environment_value(pid, variable) == value]


def kill_leftovers(variable: str, value: str) -> list[int]:
    """Send SIGKILL to all processes with ``variable=value``; return their pids."""
    pids = pids_with(variable, value)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return pids
