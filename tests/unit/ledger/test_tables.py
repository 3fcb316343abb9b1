"""A run becomes rows."""

from __future__ import annotations

from jupyter_ddl.ledger.reducer import fold_all
from jupyter_ddl.ledger.tables import metrics_table, trials_table
from jupyter_ddl.protocol.events import Event, Reported, TrialCreated
from jupyter_ddl.protocol.space import ParamValue
from tests.unit.ledger.event_makers import (
    begun,
    checkpointed,
    created,
    ended,
    reported,
    started,
    submitted,
)


def test_trials_become_rows_with_one_column_per_parameter() -> None:
    events: list[Event] = [submitted(), started(), created(1, lr=0.1), created(0, lr=0.2)]
    events += [begun(0), ended(0, 1, "evicted"), begun(0, 2), ended(0, 2, value=0.9)]
    rows = trials_table(events)
    assert rows == trials_table(fold_all(events))
    assert rows[0] == {
        "number": 0,
        "state": "complete",
        "lr": 0.2,
        "value": 0.9,
        "attempts": 2,
        "own_failures": 0,
        "evictions": 1,
        "worker": "worker-1",
        "started_at_s": 1003.0,
        "duration_s": 2.0,
    }
    assert (rows[1]["number"], rows[1]["state"], rows[1]["value"]) == (1, "waiting", None)


def test_a_trial_of_another_branch_has_none_in_the_column_of_a_parameter() -> None:
    params: list[dict[str, ParamValue]] = [{"model": "mean"}, {"model": "knn", "k": 3}]
    created = [TrialCreated(number, each, 1.0) for number, each in enumerate(params)]
    rows = trials_table([submitted(), started(), *created])
    assert [(row["model"], row["k"]) for row in rows] == [("mean", None), ("knn", 3)]
    assert list(rows[0]) == list(rows[1])


def test_a_parameter_that_would_hide_a_column_gets_a_prefix() -> None:
    rows = trials_table([submitted(), started(), TrialCreated(0, {"value": 3, "lr": 1.0}, 1.0)])
    assert (rows[0]["param_value"], rows[0]["value"], rows[0]["lr"]) == (3, None, 1.0)


def test_metrics_become_rows_of_the_attempts_that_count() -> None:
    events: list[Event] = [submitted(), started(), created(0), created(1), begun(0), begun(1)]
    events += [reported(0, 1, step, acc=step / 10) for step in (0, 1, 2, 3)]
    events += [checkpointed(0), ended(0, 1, "evicted"), begun(0, 2)]
    events += [reported(0, 1, 99, acc=9.9)]  # late
    events += [reported(0, 2, step, acc=step / 10) for step in (2, 3)]
    events += [ended(0, 2), reported(0, 2, 98), Reported(1, 1, 0, {"step": 7.0}, 1.0)]
    rows = metrics_table(events)
    assert [(row["trial"], row["attempt"], row["step"]) for row in rows] == [
        (0, 1, 0),
        (0, 1, 1),
        (0, 2, 2),
        (0, 2, 3),
        (1, 1, 0),
    ]
    assert rows[2] == {"trial": 0, "attempt": 2, "step": 2, "acc": 0.2}
    assert rows[4] == {"trial": 1, "attempt": 1, "step": 0, "metric_step": 7.0}


def test_an_attempt_that_began_anew_replaces_the_one_before() -> None:
    events: list[Event] = [submitted(), started(), created(0), begun(0), reported(0, 1, 0, acc=0.1)]
    events += [reported(0, 1, 1, acc=0.2), ended(0, 1, "failed"), begun(0, 2)]
    assert [row["attempt"] for row in metrics_table(events)] == [1, 1]
    events += [reported(0, 2, 0, acc=0.3)]
    rows = metrics_table(events)
    assert rows == [{"trial": 0, "attempt": 2, "step": 0, "acc": 0.3}]
