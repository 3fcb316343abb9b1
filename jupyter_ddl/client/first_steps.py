"""The first steps of a cell on one rank, by which a dry run guesses what more ranks would give.

User code runs in a rank process of the cluster that is there, as in every run; what it leaves in
the home is removed again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from jupyter_ddl.cell.draft import RunDraft
from jupyter_ddl.cell.options import EnvCheck
from jupyter_ddl.client.environment import status_now
from jupyter_ddl.client.history import remove_run
from jupyter_ddl.client.run import Run
from jupyter_ddl.client.scaling import earlier_runs, first_guess
from jupyter_ddl.client.submit import submit
from jupyter_ddl.errors import JupyterDDLError, LedgerBusyError
from jupyter_ddl.formats import format_bytes, format_counted, format_duration, format_percent
from jupyter_ddl.ledger.scaling import (
    MIN_STEPS,
    SIZES,
    Cost,
    Measured,
    fit_cost,
    measured_of,
)
from jupyter_ddl.verbs.ddp import Ddp

__all__ = ["FirstSteps", "guess_lines", "measure_first_steps", "scaling_now"]

_PATIENCE_S = 60.0
"""Until the steps are made: what comes before them in a cell may be long, a dry run is not."""
_END_S = 15.0
"""Until a run that was stopped has ended."""
_LOOK_S = 0.1
_DOUBT = 4.0
"""By what the assumed exchange may be dearer or cheaper."""
_N_SHOWN = 3


class FirstSteps(NamedTuple):
    """What a dry run has measured."""

    measured: Measured | None
    n_steps: int = 0
    """By how many steps."""
    why: str = ""
    """Why nothing was measured; empty: something was."""


def scaling_now(draft: RunDraft, env_check: EnvCheck | None) -> tuple[list[str], bool]:
    """What a dry run tells of more ranks, and whether the cell was begun for it.

    Earlier runs of the cell tell more than its first steps, and cost nothing.
    """
    if not _can_measure(draft) or earlier_runs(draft.spec):
        return first_guess(draft.spec), False
    try:
        found = measure_first_steps(draft, env_check)
    except JupyterDDLError as error:
        return [f"Scaling: the cell's first steps were not measured: {error.message}"], False
    if found.measured is None:
        return [f"Scaling: the cell's first steps on one rank tell nothing: {found.why}"], True
    return list(guess_lines(found.measured, found.n_steps)), True


def _can_measure(draft: RunDraft) -> bool:
    """Whether a dry run may run the cell: one with prepare_step, where a slot is free now."""
    spec = draft.spec
    if not isinstance(spec.verb, Ddp) or "prepare_step" not in spec.program.own_calls:
        return False
    status = status_now()
    return status is not None and any(each.n_slots > each.n_busy for each in status.workers)


def measure_first_steps(
    draft: RunDraft, env_check: EnvCheck | None, patience_s: float = _PATIENCE_S
) -> FirstSteps:
    """Run the cell on one rank until it has made a few steps, and stop it.

    Raises
    ------
    JupyterDDLError
        The cluster does not take the run.
    """
    asked = draft.spec.verb
    n_gpus = asked.gpus_per_rank if isinstance(asked, Ddp) else None
    # One rank and no strategy: the plain steps, whatever the line says of how ranks train.
    plain = Ddp(n_ranks=1, max_restarts=0, gpus_per_rank=n_gpus)
    spec = msgspec.structs.replace(
        draft.spec, verb=plain, bring=(), bring_files=(), name="", tensorboard=False
    )
    first = dataclasses.replace(draft, spec=spec, notes=())
    # Its notices are those of the dry run itself.
    run = submit(first, env_check=env_check, on_notice=lambda _: None)
    try:
        return _awaited(run, time.monotonic() + patience_s, patience_s)
    finally:
        _put_away(run)


def _awaited(run: Run, deadline_s: float, patience_s: float) -> FirstSteps:
    while True:
        state = run._fold()
        has_ended = state.end is not None
        with contextlib.suppress(JupyterDDLError):  # it has not told of enough steps yet
            measured = measured_of(state)
            return FirstSteps(measured, min(e.n_steps for e in state.ranks[0].steps.values()))
        if has_ended:
            cause = run.snapshot().failure
            few = f"it has fewer than {MIN_STEPS} steps"
            why = few if cause is None else f"{cause.type_name}: {cause.message}"
            return FirstSteps(None, why=why)
        if time.monotonic() > deadline_s:
            return FirstSteps(
                None, why=f"it made fewer than {MIN_STEPS} steps in {format_duration(patience_s)}"
            )
        time.sleep(_LOOK_S)


def _put_away(run: Run) -> None:
    run.cancel("now")
    deadline_s = time.monotonic() + _END_S
    with contextlib.suppress(JupyterDDLError, TimeoutError):  # how it ended was seen
        run.wait(_END_S)
    while True:
        try:
            remove_run(run.id)
        except LedgerBusyError:  # its controller has yet to let go of it
            if time.monotonic() > deadline_s:
                return  # `%runs` shows it
            time.sleep(_LOOK_S)
        else:
            return


def guess_lines(measured: Measured, n_steps: int) -> Iterator[str]:
    """What was measured, what is assumed, and how sure the guess is."""
    cost = fit_cost([measured])
    # With prepare_step the batch is that of all ranks together.
    cost = msgspec.structs.replace(cost, keeps_whole_batch=True)
    predicted = ", ".join(_of(cost, size) for size in SIZES[:_N_SHOWN])
    yield f"Scaling, a first guess for ddp: efficiency at {predicted}"
    samples = "" if measured.n_samples is None else f" of {measured.n_samples:g} samples"
    yield (
        f"  measured: {format_counted(n_steps, 'plain step')} on one rank{samples}, "
        f"{format_duration(measured.step_s)} each; {format_bytes(cost.n_bytes)} of gradients"
    )
    yield (
        f"  assumed: {cost.message_s * 1e6:.3g} µs a message and "
        f"{format_bytes(int(1 / cost.byte_s))}/s between ranks, a core or GPU for each, a batch "
        f"that is shared out and costs by its samples, no rank slower than others"
    )
    yield (
        f"  unsure: in brackets, if the exchange is {_DOUBT:g} times as dear or as cheap; nothing "
        f"of it was measured. Short runs with -n 1, -n 2 and -n 4 let run.scaling() tell with its "
        f"error"
    )


def _of(cost: Cost, n_ranks: int) -> str:
    middle = cost.efficiency(n_ranks, "ddp")
    low, high = (
        msgspec.structs.replace(
            cost, message_s=cost.message_s * factor, byte_s=cost.byte_s * factor
        ).efficiency(n_ranks, "ddp")
        for factor in (_DOUBT, 1 / _DOUBT)
    )
    between = f"{format_percent(low)} to {format_percent(high)}"
    return f"{n_ranks} ranks {format_percent(middle)} ({between})"
