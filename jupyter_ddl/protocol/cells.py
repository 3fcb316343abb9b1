"""Cells of a persistent group: what the controller tells its ranks, through their workers.

Every call to a worker is about one rank of one group; ``events.cell_results`` has the answers.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from jupyter_ddl.protocol.group import RankPlace
from jupyter_ddl.protocol.program import CapturedName, ModuleFile

__all__ = [
    "Cell",
    "CloseRank",
    "InterruptRank",
    "JoinRank",
    "OpenRank",
    "RankCall",
    "RejoinRank",
    "RunCell",
    "WatchRank",
]


class Cell(msgspec.Struct, frozen=True):
    """A cell that ranks execute in the namespace that they keep.

    ``payload`` and ``buffers`` hold the pushed variables as a
    :class:`~jupyter_ddl.protocol.program.Program` holds its captures.
    """

    source: str
    """Plain Python; line numbers are the notebook's (line 1 is the magic, blank here)."""
    filename: str
    """What tracebacks show, e.g. ``In [12]``."""
    pushed: tuple[CapturedName, ...] = ()
    payload: str | None = None
    buffers: tuple[str, ...] = ()
    modules: tuple[ModuleFile, ...] = ()
    bring: tuple[str, ...] = ()
    """Names whose values come home, from every rank that executes the cell."""
    keep_value: bool = False
    """Whether the value of the last expression comes home, and not only its ``repr``."""


class OpenRank(msgspec.Struct, frozen=True, tag="open_rank"):
    """Start the process of one rank; the answer is the address at which it can be met."""

    group_id: str
    run_dir: str
    blob_dirs: tuple[str, ...]
    place: RankPlace


class JoinRank(msgspec.Struct, frozen=True, tag="join_rank"):
    """Tell a rank the addresses of all; answered once it has met them."""

    group_id: str
    rank: int
    addresses: tuple[str, ...]
    timeout_s: float


class RejoinRank(msgspec.Struct, frozen=True, tag="rejoin_rank"):
    """Replace the process group, whose connections an interrupt has cut."""

    group_id: str
    rank: int
    round_id: str
    """New to every rank, so that nothing of the former process group is met."""
    timeout_s: float


class RunCell(msgspec.Struct, frozen=True, tag="run_cell"):
    """Execute a cell; answered when it has ended."""

    group_id: str
    rank: int
    number: int
    """Counts the cells of the group from 1."""
    cell: Cell


class InterruptRank(msgspec.Struct, frozen=True, tag="interrupt_rank"):
    """Raise ``KeyboardInterrupt`` in a cell; without effect when it has ended."""

    group_id: str
    rank: int
    number: int


class WatchRank(msgspec.Struct, frozen=True, tag="watch_rank"):
    """Answered when the rank's process has ended, however long that takes."""

    group_id: str
    rank: int


class CloseRank(msgspec.Struct, frozen=True, tag="close_rank"):
    """End the process of a rank: a busy one is killed, an idle one leaves by itself."""

    group_id: str
    rank: int


RankCall: TypeAlias = (
    OpenRank | JoinRank | RejoinRank | RunCell | InterruptRank | WatchRank | CloseRank
)
