"""Builds assignments: what a batch of attempts needs to know of its run.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from jupyter_ddl.launch.dispatcher import Dispatcher
from jupyter_ddl.placement.slots import SlotBook
from jupyter_ddl.spec.assignment import Assignment, TrialAssignment
from jupyter_ddl.spec.run import RunSpec, SearchSpec

__all__ = ["RunContext", "make_assignment"]


@dataclass(frozen=True)
class RunContext:
    """What a driver shares with the others of its controller."""

    slots: SlotBook
    dispatcher: Dispatcher
    run_dir: Path
    blob_dirs: tuple[str, ...]
    program_digest: str
    pid: int
    n_wanted: Callable[[], int]
    """Workers that the cluster was asked for."""
    wake_all: Callable[[], None]
    """Tells every run that a slot may have become free."""


def make_assignment(
    spec: RunSpec,
    context: RunContext,
    trials: Sequence[TrialAssignment],
    assignment_id: str,
    *,
    fresh: bool,
    best_value: float | None,
) -> Assignment:
    """One assignment of a run; ``best_value`` is the objective that brought values must beat."""
    verb = spec.verb
    search, mapped = (verb, None) if isinstance(verb, SearchSpec) else (None, verb)
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
        fresh_process=fresh,
        stop_grace_s=spec.limits.stop_grace_s,
        metric=search.metric if search else None,
        mode=search.mode if search else "max",
        over=mapped.over if mapped else None,
        element=mapped.element if mapped else None,
    )
