"""Events that get lost between worker and controller are asked for again."""

from __future__ import annotations

import asyncio
import random
from multiprocessing import resource_tracker
from pathlib import Path

import pytest

from jupyter_ddl.cell.draft import CellContext
from jupyter_ddl.client.run import Run
from jupyter_ddl.controller.service import ClusterService
from jupyter_ddl.driving.dispatcher import Dispatcher
from jupyter_ddl.protocol.cluster import ClusterSpec
from jupyter_ddl.protocol.events import AttemptFinished, Reported
from jupyter_ddl.protocol.run import Provenance, RunSpec
from jupyter_ddl.verbs.search import Search
from tests.leaks import Home
from tests.run_tools import STEPS, assert_clean

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module", autouse=True)
def tracker() -> None:
    """Multiprocessing's own helper of this process belongs to no test's home."""
    resource_tracker.ensure_running()


def spec_of(n_trials: int) -> RunSpec:
    verb, options = Search.from_python({"metric": "score", "trials": n_trials, "seed": 1})
    context = CellContext(cell_number=None, notebook_dir=Path.cwd(), main_globals={})
    draft = verb.compile(STEPS, {}, context, options)
    return draft.submitted("lossy", "lossy", Provenance())


async def run_in_this_process(spec: RunSpec, timeout_s: float) -> None:
    service = ClusterService(ClusterSpec(name="lossy", n_workers=2), token="1:0.0")
    await service.open(lambda _: None)
    try:
        await service.runs.submit(spec)
        async with asyncio.timeout(timeout_s):
            while service.runs.active:  # noqa: ASYNC110 - this is the poll
                await asyncio.sleep(0.05)
    finally:
        await service.close()


def test_every_lost_event_is_replayed(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(4)
    counts = {"lost": 0, "kept": 0, "twice": 0}
    deliver = Dispatcher._on_message

    def lossy(self: Dispatcher, chunk: bytes) -> None:
        fate = rng.choice(["lost", "lost", "kept", "twice"])
        counts[fate] += 1
        for _ in range({"lost": 0, "kept": 1, "twice": 2}[fate]):
            deliver(self, chunk)

    monkeypatch.setattr(Dispatcher, "_on_message", lossy)
    asyncio.run(run_in_this_process(spec_of(12), 60.0))
    run = Run("lossy")
    assert run.state == "complete"
    events = assert_clean(run, 12)
    # On a machine that is busy with other things a repeat may come too late, and the trial is
    # begun anew: of the attempts that count, nothing is missing.
    done = {
        (event.trial, event.attempt)
        for event in events
        if isinstance(event, AttemptFinished) and event.outcome == "complete"
    }
    reported = [event for event in events if isinstance(event, Reported)]
    assert len([event for event in reported if (event.trial, event.attempt) in done]) == 12 * 4
    assert min(counts.values()) > 3
