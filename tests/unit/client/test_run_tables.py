"""Tables of a run that has nothing to tell yet, and of one that is over."""

from __future__ import annotations

from pathlib import Path

from jupyter_ddl.client.run import Run
from jupyter_ddl.ledger.writer import LedgerWriter
from jupyter_ddl.protocol.events import RunFinished, RunStarted, RunSubmitted
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.store.paths import ledger_path, private_dir, run_dir
from jupyter_ddl.verbs.map import Map
from tests.leaks import Home


def spec() -> RunSpec:
    verb = Map(over="items", element="item", n_items=1)
    return RunSpec("r1", verb, Program("", "In [1]"), 1, "test", 0.0)


def test_who_keeps_a_hundred_runs_that_are_over_keeps_no_descriptor(home: Home) -> None:
    private_dir(run_dir("r1"))
    with LedgerWriter.open(ledger_path("r1"), create=True) as writer:
        writer.append([RunSubmitted(spec(), 0.0), RunFinished(1.0, "cancelled")])
        before = n_descriptors()
        kept = [Run("r1") for _ in range(100)]
        assert {run.state for run in kept} == {"cancelled"}
        # Fewer: what other tests have left was collected meanwhile.
        assert n_descriptors() <= before
        # It may go on all the same.
        writer.append([RunStarted(2.0, 2, 1, 1, 7)])
        assert {run.state for run in kept} == {"running"}


def n_descriptors() -> int:
    return sum(1 for _ in Path("/dev/fd").iterdir())


def test_a_run_without_a_trial_has_tables_with_columns(home: Home) -> None:
    private_dir(run_dir("r1"))
    with LedgerWriter.open(ledger_path("r1"), create=True) as writer:
        writer.append([RunSubmitted(spec(), 0.0), RunStarted(0.0, 1, 1, 1, 7)])
    run = Run("r1")
    assert list(run.trials.state) == []
    assert list(run.metrics.step) == []
