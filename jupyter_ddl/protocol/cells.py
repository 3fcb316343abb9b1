"""Cells of a persistent group: what ranks are told and answer, and what clients get of that."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from jupyter_ddl.protocol.events import Failure
from jupyter_ddl.protocol.folder import WorkFolder
from jupyter_ddl.protocol.group import RankPlace
from jupyter_ddl.protocol.names import FileName, StorePath
from jupyter_ddl.protocol.program import CapturedName, ModuleFile, Settings

__all__ = [
    "Cell",
    "CellDone",
    "CellOutcome",
    "CellResult",
    "CellValue",
    "CloseRank",
    "Done",
    "InterruptRank",
    "JoinRank",
    "LookAtRank",
    "OpenRank",
    "RankAddress",
    "RankAnswer",
    "RankCall",
    "RankGone",
    "RankReady",
    "RankSeen",
    "RejoinRank",
    "RunCell",
    "WatchRank",
]


# Cells of a persistent group: what the controller tells its ranks, through their workers.
#
# Every call to a worker is about one rank of one group; ``events.cell_results`` has the answers.


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
    sources: dict[str, str] = {}
    payload: str | None = None
    buffers: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()
    """Those of them that a rank is given only if it has none; all it has stays with them."""
    asked: tuple[str, ...] = ()
    """Names; the cell's value is those of them that the rank does not have, in one text."""
    modules: tuple[ModuleFile, ...] = ()
    settings: Settings | None = None
    data: tuple[ModuleFile, ...] = ()
    """As in a program."""
    bring: tuple[str, ...] = ()
    """Names whose values come back, from every rank that executes the cell."""
    keep_value: bool = False
    """Whether the value of the last expression comes back, and not only its ``repr``."""
    folder: WorkFolder = WorkFolder()
    """Where the notebook is: ranks go there when it is another one than that of the last cell."""


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
    store: str = ""


class LookAtRank(msgspec.Struct, frozen=True, tag="look_at_rank"):
    """See what a rank is at that does not come or end; answered with :class:`RankSeen`."""

    group_id: str
    rank: int
    hosts: tuple[str, ...] = ()
    """Addresses of those to which it may be connected."""


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
    shows: bool = False
    """Whether this rank's figures and tables are shown as such; others print them."""


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
    OpenRank | JoinRank | LookAtRank | RejoinRank | RunCell | InterruptRank | WatchRank | CloseRank
)


CellOutcome: TypeAlias = Literal["complete", "failed", "cancelled"]
"""``cancelled``: the cell was interrupted."""
CellValue: TypeAlias = bool | int | float | str | None


class RankAddress(msgspec.Struct, frozen=True, tag="rank_address"):
    """A rank has started and waits for the addresses of the others."""

    host: str
    port: int
    pid: int
    store: StorePath = ""


class RankReady(msgspec.Struct, frozen=True, tag="rank_ready"):
    """A rank has met the others; ``failure`` says why it has not."""

    rank: int
    device: str = "cpu"
    has_process_group: bool = False
    failure: Failure | None = None


class RankSeen(msgspec.Struct, frozen=True, tag="rank_seen"):
    """What the process of a rank is at, or the one that is to fork it."""

    state: str
    """As in a :class:`~jupyter_ddl.protocol.events.Probe`."""
    stacks: str
    cpu_share: float = 0.0
    """This and ``cut_off``: as there; nothing of a process that is still to fork the rank."""
    cut_off: tuple[str, ...] = ()
    n_runs: int = 0
    """How often the kernel has put its main thread on a CPU."""


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
    values_file: FileName | None = None
    """Brought values (and a large ``value``), relative to ``<run_dir>/values``."""
    outputs: tuple[FileName, ...] = ()
    """Figures and tables that it shows, relative to ``<run_dir>/outputs``, in order."""
    is_value_shown: bool = False
    """Whether the value is among them, so that its ``repr`` says nothing new."""
    failure: Failure | None = None
    n_traceback_bytes: int = 0
    """Length of the failure's traceback in the log, right behind ``log_end``."""
    is_cut_off: bool = False
    """The connections of the rank's process group had to be cut: it is of no use any more."""

    @property
    def next_log_start(self) -> int:
        """Where the output of the next cell begins."""
        return self.log_end + self.n_traceback_bytes


class RankGone(msgspec.Struct, frozen=True, tag="rank_gone"):
    """The process of a rank has ended."""

    reason: str
    """Goes on after "rank 1": ``was killed (SIGKILL)``."""


class Done(msgspec.Struct, frozen=True, tag="done"):
    """Done as asked."""


RankAnswer: TypeAlias = RankAddress | RankReady | RankSeen | CellDone | RankGone | Done


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
