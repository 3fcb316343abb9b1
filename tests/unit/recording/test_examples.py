"""The examples that ship are what the simulation makes, and could be runs."""

from __future__ import annotations

import pytest
from simulate_runs import EXAMPLES, FOLDER, simulated

from jupyter_ddl.ledger.audit import audit
from jupyter_ddl.protocol.events import Event
from jupyter_ddl.recording.lines import read_recording
from jupyter_ddl.recording.timeline import last_snapshot


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_what_its_seed_makes_small_and_marked(name: str) -> None:
    path = FOLDER / f"{name}.jsonl.gz"
    recording = read_recording(path)
    again = simulated(name)
    # Another version of the package may write the same facts.
    assert recording.facts == again.facts, "python tools/simulate_runs.py makes them anew"
    assert recording.head.origin == "simulated"
    assert recording.head.line.startswith("%%distribute")
    assert path.stat().st_size < 1_000_000


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_keeps_what_a_ledger_promises(name: str) -> None:
    events = [fact for fact in simulated(name).facts if isinstance(fact, Event)]
    assert audit(events) == []


def test_another_seed_is_another_run() -> None:
    assert simulated("search-500-trials", 1).facts != simulated("search-500-trials", 2).facts


def test_the_training_loses_a_rank_and_goes_on_from_its_checkpoint() -> None:
    last = last_snapshot(simulated("training-64-ranks"))
    (restart,) = last.restarts
    assert (restart.rank, restart.cause, restart.step) == (37, "died by SIGKILL", 2000)
    assert (last.state, last.world_size, last.round) == ("complete", 64, 2)


def test_the_search_prunes_fails_and_loses_a_worker() -> None:
    last = last_snapshot(simulated("search-500-trials"))
    assert last.counts.finished == 500
    assert last.counts.pruned > 300
    assert last.counts.failed > 2
    assert last.n_evictions == 4
    assert last.best is not None
