"""Events and specs for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jupyter_ddl.protocol.events import (
    AttemptFinished,
    AttemptStarted,
    CheckpointSaved,
    Event,
    Failure,
    Notice,
    Outcome,
    Reported,
    RunFinished,
    RunStarted,
    RunSubmitted,
    StopRequested,
    TrialCreated,
)
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.protocol.space import Uniform
from jupyter_ddl.verbs.map import Map
from jupyter_ddl.verbs.search import Search

BOOM = Failure("exception", "ValueError", "boom", "In [3], line 2\nValueError: boom", 2)


def search_spec(n_trials: int = 10, mode: Any = "max", **fields: Any) -> RunSpec:
    verb = Search("acc", mode, n_trials, {"lr": Uniform(0.0, 1.0)})
    return RunSpec("r1", verb, Program("x = 1", "In [3]"), 7, "local", 1000.0, **fields)


def map_spec(n_items: int = 10) -> RunSpec:
    verb = Map("items", "item", n_items)
    return RunSpec("m1", verb, Program("x = 1", "In [3]"), 7, "local", 1000.0)


def submitted(spec: RunSpec | None = None) -> RunSubmitted:
    return RunSubmitted(spec or search_spec(), 1000.0)


def started(session: int = 1, at_s: float = 1001.0) -> RunStarted:
    return RunStarted(at_s, session, 2, 2, 4242)


def created(trial: int, lr: float = 0.5, at_s: float = 1002.0) -> TrialCreated:
    return TrialCreated(trial, {"lr": lr}, at_s)


def begun(trial: int, attempt: int = 1, at_s: float = 1003.0) -> AttemptStarted:
    return AttemptStarted(trial, attempt, at_s, "worker-1", 77, "r1-1-1.log", 0)


def reported(trial: int, attempt: int = 1, step: int = 1, **metrics: float) -> Reported:
    return Reported(trial, attempt, step, metrics or {"acc": 0.5}, 1004.0)


def checkpointed(trial: int, attempt: int = 1) -> CheckpointSaved:
    return CheckpointSaved(trial, attempt, 3, f"t{trial}.ckpt", 12, 1004.5)


def ended(
    trial: int,
    attempt: int = 1,
    outcome: Outcome = "complete",
    value: float | None = None,
    failure: Failure | None = None,
    at_s: float = 1005.0,
) -> AttemptFinished:
    if outcome == "failed" and failure is None:
        failure = BOOM
    return AttemptFinished(trial, attempt, outcome, at_s, 2.0, value, 100, None, failure)


def twenty_events() -> list[Event]:
    """A small run of every kind of record."""
    events: list[Event] = [submitted(search_spec(4)), started()]
    for trial in range(4):
        events += [created(trial), begun(trial), reported(trial, acc=0.1 * trial)]
    events += [
        checkpointed(3),
        ended(0, value=0.0),
        ended(1, outcome="pruned", value=0.1),
        ended(2, outcome="evicted"),
        Notice(1005.0, "a worker was lost"),
        StopRequested(1006.0, "now", by="me"),
    ]
    return events


def long_run(n_trials: int) -> Iterator[Event]:
    """A complete run of four records per trial, as a search writes them."""
    yield submitted(search_spec(n_trials))
    yield started()
    for trial in range(n_trials):
        at_s = 1002.0 + trial * 0.01
        params = {"lr": 1e-6 + trial * 1e-5, "width": 64 + trial, "act": "relu"}
        yield TrialCreated(trial, params, at_s)
        yield AttemptStarted(
            trial, 1, at_s, "tls://127.0.0.1:40001", 9, f"{trial // 20}.log", trial
        )
        yield Reported(trial, 1, 1, {"acc": trial * 0.5, "loss": 1.5 * trial}, at_s)
        yield AttemptFinished(trial, 1, "complete", at_s, 0.01, trial * 0.5, trial + 99)
    yield RunFinished(2000.0, "complete")
