"""Looks at a rank process from outside: its state, its use of the CPU, its stacks."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import NamedTuple

import psutil

from jupyter_ddl.worker.stacks import read_stacks

__all__ = ["RankSight", "look_at"]

_SAMPLE_S = 0.5
_OTHERS_FIRST_S = 0.7
"""A stopped rank goes on for a moment to write its stacks, and those that wait for it do too:
theirs are to be written before that."""


class RankSight(NamedTuple):
    """See :class:`jupyter_ddl.events.messages.Probe`."""

    state: str
    cpu_share: float
    stacks: str


async def look_at(pid: int) -> RankSight:
    """Look at a process for half a second, at a stopped one for longer."""
    before_s = await asyncio.to_thread(_tree_cpu_s, pid)
    await asyncio.sleep(_SAMPLE_S)
    after_s = await asyncio.to_thread(_tree_cpu_s, pid)
    state = _state(pid)
    if state == "T":
        await asyncio.sleep(_OTHERS_FIRST_S)
    stacks = await asyncio.to_thread(read_stacks, pid, stopped=state == "T")
    return RankSight(state, max(0.0, after_s - before_s) / _SAMPLE_S, stacks)


def _state(pid: int) -> str:
    try:
        # The command's name may have any character in it; the state follows its last bracket.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def _tree_cpu_s(pid: int) -> float:
    """CPU seconds of a process and its children (loader processes compute for it)."""
    total = 0.0
    try:
        root = psutil.Process(pid)
        for process in (root, *root.children(recursive=True)):
            times = process.cpu_times()
            total += times.user + times.system
    except psutil.Error:
        return total
    return total
