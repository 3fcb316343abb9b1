"""What the machine of the persistent groups is told, and what it has done.  Pure."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from jupyter_ddl.driving.machine import Refuse, Reply, WaitUntil, WakeOthers, Woken
from jupyter_ddl.errors import JupyterDDLError
from jupyter_ddl.protocol.cells import Cell, RankAnswer, RankCall
from jupyter_ddl.protocol.events import CellExecuted
from jupyter_ddl.protocol.run import RunSpec

__all__ = [
    "AllCloseWanted",
    "AskGpus",
    "Call",
    "CellWanted",
    "CloseRecord",
    "CloseWanted",
    "Forget",
    "GpusKnown",
    "GroupEvent",
    "GroupInstruction",
    "InterruptWanted",
    "OpenRecord",
    "OpenWanted",
    "RankAnswered",
    "RankSilent",
    "RecordCell",
    "RecordClosed",
    "RecordOpened",
    "RecordRefused",
]


# -- events ----------------------------------------------------------------------------------------


class OpenWanted(msgspec.Struct, frozen=True):
    """A client wants the group of a name: the open one, or a new one."""

    request: int
    spec: RunSpec
    reset: bool = False


class CellWanted(msgspec.Struct, frozen=True):
    """A client wants a cell executed."""

    request: int
    group_id: str
    cell: Cell
    targets: tuple[int, ...] | None = None


class InterruptWanted(msgspec.Struct, frozen=True):
    """A client wants the cell that is executed to be interrupted."""

    request: int
    group_id: str


class CloseWanted(msgspec.Struct, frozen=True):
    """A client wants a group to end."""

    request: int
    group_id: str
    why: str


class AllCloseWanted(msgspec.Struct, frozen=True):
    """The cluster ends, and its groups with it."""

    request: int
    why: str


class GpusKnown(msgspec.Struct, frozen=True):
    """The workers have told of their GPUs."""

    group_id: str


class RecordOpened(msgspec.Struct, frozen=True):
    """The record of a group has begun, in a directory of its own."""

    group_id: str
    directory: str


class RecordRefused(msgspec.Struct, frozen=True):
    """The record of a group can't begin."""

    group_id: str
    error: JupyterDDLError


class RecordClosed(msgspec.Struct, frozen=True):
    """The record of a group has its end, or can't have it."""

    group_id: str


class RankAnswered(msgspec.Struct, frozen=True):
    """The answer to a :class:`Call`; perhaps to one that was forgotten."""

    call: int
    answer: RankAnswer


class RankSilent(msgspec.Struct, frozen=True):
    """A :class:`Call` that will not be answered: its worker is gone, or took too long."""

    call: int
    error: JupyterDDLError


GroupEvent: TypeAlias = (
    OpenWanted
    | CellWanted
    | InterruptWanted
    | CloseWanted
    | AllCloseWanted
    | GpusKnown
    | RecordOpened
    | RecordRefused
    | RecordClosed
    | RankAnswered
    | RankSilent
    | Woken
)


# -- instructions ----------------------------------------------------------------------------------


class Call(msgspec.Struct, frozen=True):
    """Ask a rank; :class:`RankAnswered` or :class:`RankSilent` follows, unless it is forgotten."""

    call: int
    worker: str
    body: RankCall
    timeout_s: float | None
    """None for what ends with a cell or a process."""


class Forget(msgspec.Struct, frozen=True):
    """Wait for these answers no longer."""

    calls: tuple[int, ...]


class AskGpus(msgspec.Struct, frozen=True):
    """Wait until the workers have told of their GPUs."""

    group_id: str


class OpenRecord(msgspec.Struct, frozen=True):
    """Begin the record of a group, a run's directory and ledger."""

    spec: RunSpec
    n_slots: int


class RecordCell(msgspec.Struct, frozen=True):
    """Record a cell; nobody waits for that."""

    group_id: str
    event: CellExecuted


class CloseRecord(msgspec.Struct, frozen=True):
    """Record the end of a group."""

    group_id: str
    state: Literal["complete", "failed"]
    reason: str


GroupInstruction: TypeAlias = (
    Call
    | Forget
    | AskGpus
    | OpenRecord
    | RecordCell
    | CloseRecord
    | Reply
    | Refuse
    | WaitUntil
    | WakeOthers
)
