"""What to say of an attempt whose rank process has died.  Pure, but for reading the log's tail."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
import psutil

from jupyter_ddl.formats import format_bytes
from jupyter_ddl.protocol.events import (
    AttemptFinished,
    AttemptStarted,
    Failure,
    FailureKind,
    Outcome,
)
from jupyter_ddl.protocol.rank_messages import CHANNEL_LOST_EXIT_CODE
from jupyter_ddl.ranks.stopping import StopReason
from jupyter_ddl.ranks.tracebacks import last_lines
from jupyter_ddl.worker.rank_process import RankEnd, RankProcess

__all__ = [
    "LogTail",
    "MemoryGuard",
    "finished_by_death",
    "oom_kill_count",
    "proportional_memory_bytes",
    "read_log_tail",
    "tree_memory_bytes",
]


# Evidence that the kernel's out-of-memory killer was at work.

_COUNTER = "oom_kill"


def oom_kill_count() -> int | None:
    """Kills by the out-of-memory killer so far; a rise explains a SIGKILL nobody sent.

    Counts this process's memory cgroup and the whole host.  None where neither can be read.
    """
    counts = [count for path in _counter_files() if (count := _read_counter(path)) is not None]
    return sum(counts) if counts else None


def _counter_files() -> list[Path]:
    files = [Path("/proc/vmstat")]
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return files
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            files.append(Path(f"/sys/fs/cgroup{path}/memory.events"))
        elif "memory" in controllers.split(","):
            files.append(Path(f"/sys/fs/cgroup/memory{path}/memory.oom_control"))
    return files


def _read_counter(path: Path) -> int | None:
    try:
        text = path.read_text()
    except OSError:
        return None
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name == _COUNTER:
            return int(value)
    return None


# Ends a rank that holds more memory than its share, before the kernel ends something else.

log = logging.getLogger(__name__)

_INTERVAL_S = 1.0


class MemoryGuard:
    """Looks at every busy rank once a second.

    Parameters
    ----------
    limit_bytes : int
        What a rank and its children may hold together; memory that several processes share
        (the zygote's imports, mapped arrays) counts once, in equal parts.
    """

    def __init__(self, limit_bytes: int, ranks: Callable[[], Iterable[RankProcess]]) -> None:
        self._limit_bytes = limit_bytes
        self._ranks = ranks

    async def watch(self) -> None:
        """Run until cancelled."""
        while True:
            await asyncio.sleep(_INTERVAL_S)
            busy = [rank for rank in self._ranks() if rank.is_busy and rank.pid]
            for rank in busy:
                used = await asyncio.to_thread(tree_memory_bytes, rank.pid, self._limit_bytes)
                if used > self._limit_bytes and rank.is_busy:
                    self._end(rank, used)

    def _end(self, rank: RankProcess, used_bytes: int) -> None:
        used, limit = format_bytes(used_bytes), format_bytes(self._limit_bytes)
        log.warning("rank %s of run %s holds %s; killed", rank.pid, rank.run_id, used)
        rank.kill(
            "memory",
            f"the trial used {used}, over the limit of {limit} of a slot; "
            f"use less memory, or start the cluster with a larger --memory",
        )


def tree_memory_bytes(pid: int, limit_bytes: int) -> int:
    """Memory of a process and its descendants.  Blocking.

    The resident sizes are summed, which is quick and counts shared pages several times; only a
    sum over ``limit_bytes`` is looked at again with shared pages counted in parts.
    """
    try:
        root = psutil.Process(pid)
        tree = [root, *root.children(recursive=True)]
    except psutil.Error:
        return 0
    resident = sum(_resident(process) for process in tree)
    if resident <= limit_bytes:
        return resident
    return sum(_proportional(process) for process in tree)


def proportional_memory_bytes(pids: Iterable[int]) -> int:
    """Memory of processes, with the pages that they share counted in parts.  Blocking."""
    total = 0
    for pid in pids:
        with contextlib.suppress(psutil.Error):  # it has just ended
            total += _proportional(psutil.Process(pid))
    return total


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def _proportional(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except (psutil.Error, AttributeError):
        return _resident(process)


_TAIL_BYTES = 32 * 1024
_FATAL = re.compile(r"^Fatal Python error: .*", re.MULTILINE | re.DOTALL)
_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in ')
_OUR_FILES = str(Path(__file__).parents[1])


class LogTail(msgspec.Struct, frozen=True):
    text: str = ""
    end: int | None = None


def read_log_tail(path: Path, start: int) -> LogTail:
    """Last 32 kB of an attempt's output.  Blocking; empty when the file can't be read."""
    try:
        with path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(start, end - _TAIL_BYTES))
            return LogTail(file.read().decode(errors="replace"), end)
    except OSError:
        return LogTail()


def finished_by_death(
    started: AttemptStarted,
    end: RankEnd,
    tail: LogTail,
    *,
    stop_reason: StopReason | None,
    out_of_memory: bool,
) -> AttemptFinished:
    """The end of an attempt that its rank could not report itself.

    Parameters
    ----------
    stop_reason : str, optional
        Set when the worker was ending this attempt.
    out_of_memory : bool
        The kernel's out-of-memory killer has been at work since the rank began.
    """
    outcome: Outcome
    failure: Failure | None = None
    if stop_reason is not None:
        outcome = stop_reason
    elif end.cause == "zygote":
        outcome, failure = "evicted", Failure("launch", "ZygoteLost", end.detail)
    else:
        outcome, failure = "failed", _failure(end, tail.text, out_of_memory)
    now = time.time()
    return AttemptFinished(
        trial=started.trial,
        attempt=started.attempt,
        outcome=outcome,
        at_s=now,
        duration_s=max(0.0, now - started.at_s),
        log_end=tail.end,
        failure=failure,
    )


def _failure(end: RankEnd, output: str, out_of_memory: bool) -> Failure:
    kind: FailureKind = "crash"
    type_name = _type_name(end)
    by_kernel = end.signal_number == signal.SIGKILL and out_of_memory
    if end.cause == "memory" or (end.cause == "itself" and by_kernel):
        kind = "memory"
    traceback, line = _fault(output)
    told = traceback or last_lines(output)
    return Failure(kind, type_name, _message(end, out_of_memory), told, line)


def _type_name(end: RankEnd) -> str:
    if end.signal_number is not None:
        try:
            return signal.Signals(end.signal_number).name
        except ValueError:  # a real-time signal
            return f"signal {end.signal_number}"
    return f"exit code {end.exit_code}" if end.exit_code is not None else end.cause


def _message(end: RankEnd, out_of_memory: bool) -> str:
    if end.cause != "itself":
        return end.detail
    if end.exit_code == CHANNEL_LOST_EXIT_CODE:
        return (
            "the process of the trial lost its channel to the worker; "
            "does the cell close file descriptors that it has not opened?"
        )
    if end.signal_number is None:
        return (
            f"the process of the trial ended itself with exit code {end.exit_code} "
            f"before the cell had finished; os._exit() does that"
        )
    if end.signal_number == signal.SIGKILL:
        if out_of_memory:
            return (
                "the kernel's out-of-memory killer ended the process of the trial (SIGKILL); "
                "use less memory, or run fewer trials at a time"
            )
        return (
            "the process of the trial was killed (SIGKILL): the kernel's out-of-memory killer "
            "or somebody on the host sent it; the worker did not"
        )
    text = signal.strsignal(end.signal_number) or "unknown signal"
    return f"the process of the trial died of {_type_name(end)} ({text})"


def _fault(output: str) -> tuple[str, int | None]:
    """Faulthandler's report in a log, without our own frames; and the line in the cell."""
    found = _FATAL.search(output)
    if found is None:
        return "", None
    cell_line: int | None = None
    shown: list[str] = []
    for block in found.group().split("\n\n"):
        lines = [text for text in block.splitlines() if not _is_ours(text)]
        frames = [frame for text in lines if (frame := _FRAME.match(text))]
        if lines and lines[0].startswith("Extension modules:"):
            break
        if "hread 0x" in lines[0] and not frames:
            continue  # a thread of ours
        if cell_line is None:
            in_cell = (int(f["line"]) for f in frames if f["file"].startswith("In ["))
            cell_line = next(in_cell, None)
        shown.extend(lines)
    return "\n".join(shown).strip(), cell_line


def _is_ours(text: str) -> bool:
    frame = _FRAME.match(text)
    return frame is not None and frame["file"].startswith(_OUR_FILES)
