"""Which process is meant, and whether it still runs; finds processes of ours and ends them.

A process is judged only where its pid means something: in the same boot of the same host and in
the same namespaces.  Of any other nothing is known here, and none is ever signalled.

Every process below a worker has ``JUPYTER_DDL_OWNER`` (the cluster) and ``JUPYTER_DDL_ZYGOTE``
in its environment, and what a rank has started by exec has ``JUPYTER_DDL_RANK`` as well, so that a
child in a session of its own is found after its parent has died.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

__all__ = [
    "OWNER_VARIABLE",
    "RANK_VARIABLE",
    "ZYGOTE_VARIABLE",
    "ProcessIdentity",
    "boot_id",
    "child_pids",
    "end_process",
    "environment_value",
    "identity_of",
    "is_alive",
    "is_gone",
    "kill_leftovers",
    "mark_fork",
    "pids_by",
    "this_process",
]


# Which process is meant: a pid alone may have been given to another one since.

OWNER_VARIABLE = "JUPYTER_DDL_OWNER"
"""Environment variable that every process below a controller carries: the controller's token."""
_POLL_S = 0.05


class ProcessIdentity(msgspec.Struct, frozen=True):
    """A process, told by nothing that setting a clock changes."""

    pid: int
    start_ticks: int
    """Clock ticks from the boot to its start, as the kernel counts them."""
    boot_id: str
    namespaces: str
    """Those that its pid and its ticks are counted in; empty where the system does not tell."""

    @property
    def token(self) -> str:
        """The process as one word."""
        return f"{self.boot_id}:{self.namespaces}:{self.pid}:{self.start_ticks}"

    @classmethod
    def of_token(cls, token: str) -> ProcessIdentity:
        """The process that a token is of.  Raises ValueError if it is not one."""
        boot, namespaces, pid, ticks = token.split(":")
        return cls(int(pid), int(ticks), boot, namespaces)


_boot_id = ""


def boot_id() -> str:
    """Changes with every boot; empty where the system does not tell."""
    global _boot_id
    if not _boot_id:  # read once: who has no descriptor left still judges
        with contextlib.suppress(OSError):
            _boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return _boot_id


def _namespaces() -> str:
    """The namespaces of pids and of times that this process is in; empty where that is not told.

    The ticks of a process's start are told anew in each namespace of times.
    """
    try:
        if Path("/proc/self").readlink() != Path(str(os.getpid())):
            return ""  # this /proc shows the processes of another namespace
        pids = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return ""
    with contextlib.suppress(OSError):  # Linux before 5.6
        return f"{pids}-{Path('/proc/self/ns/time').stat().st_ino}"
    return str(pids)


def this_process() -> ProcessIdentity:
    return _identity(os.getpid(), _stat("self"))


def identity_of(pid: int) -> ProcessIdentity:
    """A process that runs here."""
    return _identity(pid, _stat(pid))


def _identity(pid: int, stat: list[str]) -> ProcessIdentity:
    return ProcessIdentity(pid, _ticks(stat) if stat else 0, boot_id(), _namespaces())


def is_alive(identity: ProcessIdentity) -> bool:
    """Whether exactly this process is seen to run (a zombie does not).

    Where nothing can be read of it now, as without a descriptor to spare, its pid alone tells.
    """
    if not _is_seen_from_here(identity):
        return False
    runs = _is_running(identity)
    return _answers(identity.pid) is True if runs is None else runs


def is_gone(identity: ProcessIdentity) -> bool:
    """Whether exactly this process is known to run no more.

    False as well for a process that can't be judged here: of another host, boot or namespace, or
    one of which nothing can be read while its pid is in use.
    """
    if not _is_seen_from_here(identity):
        return False
    runs = _is_running(identity)
    return _answers(identity.pid) is False if runs is None else not runs


def _answers(pid: int) -> bool | None:
    """Whether there is a process of this pid; None: there is one, of another user."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return None
    return True


def _is_seen_from_here(identity: ProcessIdentity) -> bool:
    here = (boot_id(), _namespaces())
    return all(here) and here == (identity.boot_id, identity.namespaces)


def _is_running(identity: ProcessIdentity) -> bool | None:
    """None: nothing was read; it has ended, /proc hides it, or no file can be opened now."""
    stat = _stat(identity.pid)
    if not stat:
        return None
    return _ticks(stat) == identity.start_ticks and stat[0] not in ("Z", "X")


def _stat(pid: int | str) -> list[str]:
    """What the kernel tells of a process, from its state on; empty if nothing can be read."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return []
    # The command's name stands in parentheses and may contain spaces.
    return text.rpartition(")")[2].split()


def _ticks(stat: list[str]) -> int:
    return int(stat[19])


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
    # A pid alone is no proof that this is the process that was meant.
    if _is_seen_from_here(identity) and _is_running(identity):
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


def mark_fork(variable: str, value: str) -> None:
    """Give a variable that this process was started with another value of the same length.

    In a fork, so that it is found by a value of its own: others see what stood in the memory of
    its parent at that one's start, and go on seeing that after a change of ``os.environ``.

    Raises
    ------
    OSError
        The variable is not there with a value of this length, or the system doesn't tell where.
    """
    stat = _stat("self")
    start, end = map(int, stat[47:49]) if len(stat) > 48 else (0, 0)
    former = f"{variable}={os.environ.get(variable, '')}".encode()
    entry = f"{variable}={value}".encode()
    at = ctypes.string_at(start, end - start).find(b"\0" + former + b"\0") if start else -1
    if at < 0 or len(former) != len(entry):
        raise OSError(errno.ENOENT, f"{variable} can't be changed where others see it")
    ctypes.memmove(start + at + 1, entry, len(entry))
    os.environ[variable] = value


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
    stat = _stat(pid)
    return int(stat[1]) if stat else None


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
