"""Builds assignments: what a batch of attempts needs to know of its run.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from jupyter_ddl.launch.dispatcher import Dispatcher
from jupyter_ddl.launch.group import place_ranks
from jupyter_ddl.placement.gpus import Grant
from jupyter_ddl.placement.slots import SlotBook
from jupyter_ddl.protocol.assignment import Assignment, TrialAssignment
from jupyter_ddl.protocol.group import RankPlace
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.protocol.telemetry import Usage

__all__ = ["RunContext", "make_assignment", "make_group"]

_COLLECTIVE_TIMEOUT_S = 1800.0
"""Torch's own default."""
_NO_PLACES = Grant(())


@dataclass(frozen=True)
class RunContext:
    """What a driver shares with the others of its controller."""

    slots: SlotBook
    dispatcher: Dispatcher
    run_dir: Path
    blob_dirs: tuple[str, ...]
    program_digest: str
    pid: int
    host_of: Callable[[str], str]
    """Address of a worker's host."""
    n_wanted: Callable[[], int]
    """Workers that the cluster was asked for."""
    wake_all: Callable[[], None]
    """Tells every run that a slot may have become free."""
    usage: Callable[[str], Usage | None] = lambda _: None
    """What a run has held so far, by its id."""


def make_assignment(
    spec: RunSpec,
    context: RunContext,
    trials: Sequence[TrialAssignment],
    assignment_id: str,
    *,
    fresh: bool,
    best_value: float | None,
    place: RankPlace | None = None,
    places: Grant = _NO_PLACES,
) -> Assignment:
    """One assignment of a run; ``best_value`` is the objective that brought values must beat."""
    study, items = spec.verb.study, spec.verb.items
    return Assignment(
        run_id=spec.run_id,
        assignment_id=assignment_id,
        program=context.program_digest,
        trials=tuple(trials),
        run_dir=str(context.run_dir),
        blob_dirs=context.blob_dirs,
        topic=context.dispatcher.topic,
        bring=spec.bring,
        best_value=best_value if spec.bring else None,
        # A process sees the GPUs that it had when it first used one, whatever it is told later.
        fresh_process=fresh or bool(places.gpus),
        place=place,
        gpus=places.gpus[0] if places.gpus else (),
        stop_grace_s=spec.limits.stop_grace_s,
        metric=study.metric if study else None,
        mode=study.mode if study else "max",
        over=items.over if items else None,
        element=items.element if items else None,
    )


def make_group(
    spec: RunSpec,
    context: RunContext,
    trial: TrialAssignment,
    assignment_id: str,
    places: Grant,
    best_value: float | None,
) -> list[Assignment]:
    """One assignment per rank of a group, each with its place in it."""
    hosts = [context.host_of(worker) for worker in places.workers]
    ranks = spec.verb.ranks
    base = RankPlace(
        group_id=f"{spec.run_id}-{trial.trial}-{trial.attempt}",
        restart_count=trial.attempt - 1,
        max_restarts=spec.limits.max_own_failures - 1,
        # The hang watch judges first, and says more than a timeout of the collective would.
        timeout_s=_COLLECTIVE_TIMEOUT_S,
        backend=ranks.backend,
        initialize=ranks.initialize,
        strategy=ranks.strategy,
    )
    return [
        make_assignment(
            spec,
            context,
            [trial],
            f"{assignment_id}-r{place.rank}",
            fresh=True,
            best_value=best_value,
            place=place,
        )
        for place in place_ranks(places.workers, hosts, base, places.gpus)
    ]
