"""What worker, zygote and ranks tell each other: one tagged struct a frame."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from jupyter_ddl.protocol.assignment import Assignment, StopRun, StopTrial
from jupyter_ddl.protocol.cells import (
    CellDone,
    InterruptRank,
    OpenRank,
    RankReady,
    RejoinRank,
    RunCell,
)
from jupyter_ddl.protocol.events import RankEvent
from jupyter_ddl.protocol.group import JoinGroup, MembersChanged
from jupyter_ddl.protocol.sampling import SamplerAnswers, SamplerCall

__all__ = [
    "CHANNEL_LOST_EXIT_CODE",
    "PID_BYTES",
    "BatchDone",
    "Execute",
    "ForkFailed",
    "ForkRank",
    "ForkZygote",
    "FromRank",
    "FromZygote",
    "ImportPackages",
    "LoaderWait",
    "PackagesImported",
    "RankExited",
    "RankForked",
    "ToCells",
    "ToRank",
    "ToZygote",
    "ZygoteReady",
]


CHANNEL_LOST_EXIT_CODE = 97
"""A rank whose socket is gone from under it ends with this."""


class ForkRank(msgspec.Struct, frozen=True, tag="fork_rank"):
    """Fork a rank; its end of a socket pair comes with this frame (SCM_RIGHTS)."""

    name: str


class ImportPackages(msgspec.Struct, frozen=True, tag="import_packages"):
    names: tuple[str, ...]


class ForkZygote(msgspec.Struct, frozen=True):
    """Asks a source for a zygote; its control socket and its lifeline come with it (SCM_RIGHTS)."""

    zygote_id: str
    imports: tuple[str, ...]
    """What it is to have imported."""
    environment: dict[str, str]
    """What it is to be started with."""
    directory: str


PID_BYTES = 4
"""What precedes such a zygote's first frame: the source's pid when it takes the request, and then
the zygote's, with a descriptor of that process."""


class ZygoteReady(msgspec.Struct, frozen=True, tag="zygote_ready"):
    pid: int
    loaded: tuple[str, ...] = ()
    """Top-level modules that it has loaded by now, and that its ranks will have."""


class RankForked(msgspec.Struct, frozen=True, tag="rank_forked"):
    name: str
    pid: int


class ForkFailed(msgspec.Struct, frozen=True, tag="fork_failed"):
    name: str
    message: str


class RankExited(msgspec.Struct, frozen=True, tag="rank_exited"):
    """A rank is gone: one of ``exit_code`` and ``signal_number`` is set."""

    name: str
    pid: int
    exit_code: int | None = None
    signal_number: int | None = None


class PackagesImported(msgspec.Struct, frozen=True, tag="packages_imported"):
    """``failed``: package and its error, for those that are not there or do not import."""

    imported: tuple[str, ...]
    failed: dict[str, str]
    loaded: tuple[str, ...] = ()
    """All top-level modules that are loaded by now."""


class Execute(msgspec.Struct, frozen=True, tag="execute"):
    """Execute the trials of an assignment in order."""

    assignment: Assignment
    worker: str


class BatchDone(msgspec.Struct, frozen=True, tag="batch_done"):
    """The rank has executed all trials of its assignment and is free."""


class LoaderWait(msgspec.Struct, frozen=True, tag="loader_wait"):
    """Share of the last second, or of the time since, that the cell waited for its DataLoader."""

    share: float


ToZygote: TypeAlias = ForkRank | ImportPackages
FromZygote: TypeAlias = ZygoteReady | RankForked | ForkFailed | RankExited | PackagesImported
ToCells: TypeAlias = OpenRank | RejoinRank | RunCell
"""What a rank of a persistent group executes on its main thread."""
ToRank: TypeAlias = (
    Execute
    | SamplerCall
    | StopTrial
    | StopRun
    | JoinGroup
    | MembersChanged
    | ToCells
    | InterruptRank
)
FromRank: TypeAlias = RankEvent | BatchDone | SamplerAnswers | RankReady | CellDone
"""What a rank says in the course of its work; about its process alone it says ``LoaderWait``."""
