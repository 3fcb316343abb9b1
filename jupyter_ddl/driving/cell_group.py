"""One persistent group: how far it is, the cell that it executes, what to say of both.  Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from jupyter_ddl.driving.cell_watch import CellWatch
from jupyter_ddl.driving.group_events import OpenWanted
from jupyter_ddl.driving.hangs import StepWatch
from jupyter_ddl.driving.machine import Now
from jupyter_ddl.errors import GroupLostError, JupyterDDLError, LaunchError, SpecError
from jupyter_ddl.placement.gpus import Grant
from jupyter_ddl.protocol.cells import (
    Cell,
    CellDone,
    CellOutcome,
    CellResult,
    RankAddress,
    RankAnswer,
    RankCall,
    RankGone,
    RankReady,
    RankSeen,
)
from jupyter_ddl.protocol.events import CellExecuted, Failure
from jupyter_ddl.protocol.replies import GroupStatus, RankStatus
from jupyter_ddl.protocol.run import RunSpec

__all__ = [
    "LiveGroup",
    "Phase",
    "RunningCell",
    "cell_event",
    "checked_targets",
    "end_of",
    "lost_error",
    "status_of",
    "unexpected",
]

_NO_PLACES = Grant(())

Phase = Literal["gpus", "record", "starting", "joining", "ready", "ending", "recording"]
"""``ready`` is an open group's; those before and behind it are on the way."""


@dataclass(slots=True)
class RunningCell:
    """The cell that is being executed."""

    request: int
    number: int
    cell: Cell
    targets: tuple[int, ...]
    at_s: float
    done: dict[int, CellDone] = field(default_factory=dict)
    unclear: dict[int, tuple[float, str]] = field(default_factory=dict)
    """Ranks that did not end it: until when they are watched, and what they answered instead."""
    rejoined: dict[int, RankAnswer] | None = None
    """Answers of ranks that rebuild the process group."""
    watch: CellWatch | None = None
    """None: there is one rank, which waits for no other."""
    seen: dict[int, RankSeen | None] = field(default_factory=dict)
    """Of ranks that are being looked at."""

    @property
    def waiting(self) -> tuple[int, ...]:
        return tuple(rank for rank in self.targets if rank not in self.done)

    @property
    def notice(self) -> str:
        """Who waits for whom, once it takes long."""
        return "" if self.watch is None else self.watch.notice

    def result(self, group_id: str, note: str = "") -> CellResult:
        done = tuple(self.done[rank] for rank in sorted(self.done))
        return CellResult(group_id, self.number, done, self.waiting, note)


@dataclass(slots=True)
class LiveGroup:
    name: str
    spec: RunSpec
    request: int
    """Who wants it opened."""
    phase: Phase = "gpus"
    started_at_s: float = 0.0
    opened_by_s: float = 0.0
    directory: str = ""
    places: Grant = _NO_PLACES
    hosts: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    watch: StepWatch | None = None
    """While its ranks start or join."""
    where: dict[int, str] = field(default_factory=dict)
    """Where ranks are that are late."""
    notice: str = ""
    """Who waits for whom while it opens, once that takes long."""
    calls: dict[int, tuple[int, RankCall]] = field(default_factory=dict)
    """Rank and body of the calls that are under way."""
    answers: dict[int, RankAnswer] = field(default_factory=dict)
    addresses: tuple[RankAddress, ...] = ()
    statuses: list[RankStatus] = field(default_factory=list)
    has_process_group: bool = False
    n_cells: int = 0
    running: RunningCell | None = None
    interrupts: dict[int, set[int]] = field(default_factory=dict)
    """Requests to interrupt, and the calls that each waits for."""
    ending: tuple[Literal["complete", "failed"], str] = ("complete", "")
    failure: JupyterDDLError | None = None
    """Why it could not be opened."""
    closers: list[int] = field(default_factory=list)
    """Requests that wait for its end."""
    parked: list[OpenWanted] = field(default_factory=list)
    """Requests for its name that wait until it is open, or gone."""

    @property
    def id(self) -> str:
        return self.spec.run_id

    @property
    def n_ranks(self) -> int:
        return len(self.places.workers)


def status_of(group: LiveGroup) -> GroupStatus:
    return GroupStatus(
        group_id=group.id,
        name=group.name,
        started_at_s=group.started_at_s,
        n_cells=group.n_cells,
        is_busy=group.running is not None,
        ranks=tuple(group.statuses),
        has_process_group=group.has_process_group,
    )


def lost_error(group_id: str, reason: str, *, was_closed: bool = False) -> GroupLostError:
    """What a cell is told whose group has ended.

    Parameters
    ----------
    was_closed
        Somebody has asked for that, before the cell began.
    """
    return GroupLostError(
        f"group {group_id} has ended: {reason}; its variables are gone, and the next cell starts "
        f"a new group",
        group_id=group_id,
        reason=reason,
        was_closed=was_closed,
    )


def unexpected(
    group: LiveGroup, rank: int, answer: RankAnswer, kind: type[RankAddress] | type[RankReady]
) -> LaunchError | None:
    """What is wrong with a rank's answer; None: nothing."""
    if isinstance(answer, RankReady) and answer.failure is not None:
        failure = answer.failure
        return LaunchError(
            f"rank {rank} could not join its group: {failure.type_name}: {failure.message}; "
            f"--no-init starts ranks without a process group",
            traceback=failure.traceback,
        )
    if not isinstance(answer, kind):
        return LaunchError(f"rank {rank} (on {group.places.workers[rank]}) {end_of(answer)}")
    return None


def end_of(answer: RankAnswer | JupyterDDLError) -> str:
    """How a rank ended, as its worker says."""
    if isinstance(answer, RankGone):
        return answer.reason
    if isinstance(answer, JupyterDDLError):
        return "was lost with its worker"
    return f"answered {answer!r}"


def checked_targets(group: LiveGroup, targets: Sequence[int] | None) -> tuple[int, ...]:
    n_ranks = group.n_ranks
    if targets is None:
        return tuple(range(n_ranks))
    wrong = [rank for rank in targets if not 0 <= rank < n_ranks]
    if wrong or not targets:
        named = ", ".join(map(str, wrong)) or "none"
        raise SpecError(f"group {group.id} has ranks 0 to {n_ranks - 1}; -t names {named}")
    return tuple(sorted(set(targets)))


def cell_event(running: RunningCell, lost: str, now: Now) -> CellExecuted:
    """The record of a cell that has ended on some of its ranks, or with the group (``lost``)."""
    ended = [running.done[rank] for rank in running.targets if rank in running.done]
    failures = [each.failure for each in ended if each.outcome == "failed"]
    if lost:
        failures.append(Failure("crash", "GroupLostError", lost))
    outcome: CellOutcome = "complete"
    if failures or len(ended) < len(running.targets):
        outcome = "failed" if failures else "cancelled"
    elif any(each.outcome == "cancelled" for each in ended):
        outcome = "cancelled"
    return CellExecuted(
        number=running.number,
        source=running.cell.source,
        targets=running.targets,
        outcome=outcome,
        at_s=running.at_s,
        duration_s=now.wall_s - running.at_s,
        log_starts=tuple(each.log_start for each in ended),
        log_ends=tuple(each.next_log_start for each in ended),
        outputs=tuple(file for each in ended for file in each.outputs),
        failure=failures[0] if failures else None,
    )
