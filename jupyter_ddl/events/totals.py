"""The figures in a run's last record, from which lists show it without folding it."""

from __future__ import annotations

import msgspec

from jupyter_ddl.events.fold_ranks import latest_round, latest_step
from jupyter_ddl.events.messages import RunFinished
from jupyter_ddl.events.run_state import RunState

__all__ = ["with_totals"]


def with_totals(state: RunState, event: RunFinished) -> RunFinished:
    """The last record of a run with the totals that a listing of runs shows.

    ``state`` has not folded ``event`` yet: what waits or runs in it is cancelled by the end.
    """
    counts = msgspec.structs.asdict(state.counts)
    totals = {name: number for name, number in counts.items() if number}
    open_trials = totals.pop("waiting", 0) + totals.pop("running", 0)
    if open_trials:
        totals["cancelled"] = totals.get("cancelled", 0) + open_trials
    search = state.spec is not None and state.spec.judged is not None
    return msgspec.structs.replace(
        event,
        totals=totals,
        best_trial=state.best_number if search else None,
        best_value=state.best_value if search else None,
        step=latest_step(state),
        round=latest_round(state),
    )
