"""The parallel call of a search's refit is a row of the run and no candidate."""

from __future__ import annotations

from jupyter_ddl.ledger.reducer import fold
from jupyter_ddl.ledger.run_state import RunState
from jupyter_ddl.ledger.snapshots import snapshot_of, with_totals
from jupyter_ddl.protocol.events import RunFinished, TrialCreated
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.verbs.fit import Fit
from tests.unit.ledger.event_makers import begun, created, ended, reported, started, submitted

_SPEC = RunSpec("f1", Fit(), Program("", "fit"), 7, "local", 1000.0)


def test_a_refit_is_shown_and_not_counted_while_it_runs_and_afterwards() -> None:
    state = RunState()
    for event in (submitted(_SPEC), started(), created(0), created(1)):
        fold(state, event)
    for trial in (0, 1):
        for event in (begun(trial), reported(trial, score=0.5), ended(trial, value=0.5)):
            fold(state, event)
    fold(state, TrialCreated(2, {"refit": "fit_transform_one", "calls": 2}, 1002.0, is_refit=True))
    fold(state, begun(2))
    for _ in range(2):
        shown = snapshot_of(state, 1010.0)
        assert (shown.n_trials, shown.counts.complete) == (2, 2)
        assert [row.number for row in shown.rows] == [0, 1, 2]
        assert shown.rows[2].params == {"refit": "fit_transform_one", "calls": 2}
        fold(state, ended(2))
    assert shown.counts.finished == 2
    assert with_totals(state, RunFinished(1011.0, "complete")).totals == {"complete": 2}
