"""What comes of a persistent group's cells: the answers of its ranks, put together for clients."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from jupyter_ddl.protocol.events import Failure

__all__ = [
    "CellDone",
    "CellOutcome",
    "CellResult",
    "CellValue",
    "Done",
    "RankAddress",
    "RankAnswer",
    "RankGone",
    "RankReady",
]

CellOutcome: TypeAlias = Literal["complete", "failed", "cancelled"]
"""``cancelled``: the cell was interrupted."""
CellValue: TypeAlias = bool | int | float | str | None


class RankAddress(msgspec.Struct, frozen=True, tag="rank_address"):
    """A rank has started and waits for the addresses of the others."""

    host: str
    port: int
    pid: int


class RankReady(msgspec.Struct, frozen=True, tag="rank_ready"):
    """A rank has met the others; ``failure`` says why it has not."""

    rank: int
    device: str = "cpu"
    has_process_group: bool = False
    failure: Failure | None = None


class CellDone(msgspec.Struct, frozen=True, tag="cell_done"):
    """How a cell ended on one rank."""

    rank: int
    number: int
    outcome: CellOutcome
    duration_s: float
    log_start: int
    log_end: int
    """The cell's output lies between these bytes of the rank's log."""
    text: str | None = None
    """``repr`` of the last expression's value; None without one."""
    value: CellValue = None
    has_value: bool = False
    """Whether ``value`` is the last expression's value; a larger one is in the values file."""
    values_file: str | None = None
    """Brought values (and a large ``value``), relative to ``<run_dir>/values``."""
    failure: Failure | None = None
    is_cut_off: bool = False
    """The connections of the rank's process group had to be cut: it is of no use any more."""


class RankGone(msgspec.Struct, frozen=True, tag="rank_gone"):
    """The process of a rank has ended."""

    reason: str
    """Goes on after "rank 1": ``was killed (SIGKILL)``."""


class Done(msgspec.Struct, frozen=True, tag="done"):
    """Done as asked."""


RankAnswer: TypeAlias = RankAddress | RankReady | CellDone | RankGone | Done


class CellResult(msgspec.Struct, frozen=True, tag="cell_result"):
    """A cell on its ranks: the answer to ``ExecuteCell``, and in parts to ``PollCell``."""

    group_id: str
    number: int
    ranks: tuple[CellDone, ...]
    """Those that are done, by rank."""
    waiting: tuple[int, ...] = ()
    """Ranks that still execute it."""
    note: str = ""
    """A sentence that the user should see."""
