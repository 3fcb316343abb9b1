"""Tables of a run that has nothing to tell yet."""

from jupyter_ddl.client.run import Run
from jupyter_ddl.ledger.file import LedgerWriter
from jupyter_ddl.protocol.events import RunStarted, RunSubmitted
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.store.paths import ledger_path, private_dir, run_dir
from jupyter_ddl.verbs.map import Map
from tests.leaks import Home


def test_a_run_without_a_trial_has_tables_with_columns(home: Home) -> None:
    private_dir(run_dir("r1"))
    verb = Map(over="items", element="item", n_items=1)
    spec = RunSpec("r1", verb, Program("", "In [1]"), 1, "test", 0.0)
    with LedgerWriter.open(ledger_path("r1"), create=True) as writer:
        writer.append([RunSubmitted(spec, 0.0), RunStarted(0.0, 1, 1, 1, 7)])
    run = Run("r1")
    assert list(run.trials.state) == []
    assert list(run.metrics.step) == []
