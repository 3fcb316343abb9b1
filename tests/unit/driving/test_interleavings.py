"""Searches, maps and trainings in virtual time: whatever happens, nothing is lost or doubled, and
every wait ends.

Many more of them: ``python -m jupyter_ddl.testing.interleave --count 100000``.
"""

from __future__ import annotations

from collections import deque
from random import Random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from jupyter_ddl.ledger.reducer import fold_all
from jupyter_ddl.protocol.events import AttemptFinished, AttemptStarted, StopRequested
from jupyter_ddl.testing.dispatcher import Faults
from jupyter_ddl.testing.interleave import random_spec, random_world
from jupyter_ddl.testing.world import DEEDS, Deed, World, WorldError

KINDS = ("search", "map", "training")
ALL = Faults(
    lost_chunk=0.2,
    doubled_chunk=0.2,
    lost_signal=0.1,
    deaf=0.1,
    never_begun=0.1,
    swallowed=0.05,
    fails=0.1,
    crashes=0.1,
    disk_full=0.05,
    slow=0.1,
    long=0.05,
)


@pytest.mark.parametrize("kind", KINDS)
def test_promises_hold_in_random_orders(kind: str) -> None:
    seen = {"failed": 0, "evicted": 0, "sessions": 0, "stops": 0, "again": 0}
    n_leases = n_beyond = 0
    for seed in range(500):
        world = random_world(seed, kind)
        world.run()
        for run in world.runs:
            for event in run.ledger:
                if isinstance(event, AttemptFinished) and event.outcome in seen:
                    seen[event.outcome] += 1
                    n_leases += event.failure is not None and event.failure.type_name == "LeaseOver"
                seen["again"] += isinstance(event, AttemptStarted) and event.attempt > 1
                seen["stops"] += isinstance(event, StopRequested)
            state = fold_all(run.ledger)
            seen["sessions"] += state.session > 1
            limit = run.spec.limits.max_evictions
            lost = [trial for trial in state.trials.values() if trial.evictions > limit]
            n_beyond += sum(trial.state == "complete" for trial in lost)
    # Orders in which nothing goes wrong would prove nothing.
    assert min(seen.values()) > 20, seen
    assert n_beyond, "none came to its end that was lost more often than its limit in a row"
    assert (n_leases > 20) == (kind != "training"), f"{n_leases} leases were over"


@pytest.mark.parametrize("kind", KINDS)
def test_a_world_is_a_function_of_its_seed(kind: str) -> None:
    for seed in range(20):
        one, other = random_world(seed, kind), random_world(seed, kind)
        one.run()
        other.run()
        assert [run.ledger for run in one.runs] == [run.ledger for run in other.runs]


class AnyOrder(RuleBasedStateMachine):
    """What hypothesis can think of: it shrinks an order that breaks a promise."""

    world: World

    @initialize(seed=st.integers(0, 10_000), kind=st.sampled_from(KINDS), n_runs=st.integers(1, 2))
    def begin(self, seed: int, kind: str, n_runs: int) -> None:
        rng = Random(seed)
        specs = [random_spec(rng, kind, f"r{number}") for number in range(n_runs)]
        self.world = World(seed, specs, ALL)
        self.world.begin()

    @rule(n_steps=st.integers(1, 20))
    def go_on(self, n_steps: int) -> None:
        self.world.advance(n_steps)

    @rule(deed=st.sampled_from(DEEDS))
    def do(self, deed: Deed) -> None:
        self.world.do(deed)

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.restore()
            self.world.finish()


AnyOrder.TestCase.settings = settings(
    max_examples=150,
    stateful_step_count=12,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
TestAnyOrder = AnyOrder.TestCase


def test_a_lost_trial_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checks themselves: a machine that forgets what was never begun is found out."""
    monkeypatch.setattr("jupyter_ddl.driving.queue.TrialQueue.put_back", lambda *_: None)
    worlds = [random_world(seed, "search") for seed in range(200)]
    with pytest.raises(WorldError):
        deque((world.run() for world in worlds), maxlen=0)
