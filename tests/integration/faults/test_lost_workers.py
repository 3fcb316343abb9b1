"""Workers that are killed or stopped: nothing is lost, nothing is done twice."""

from __future__ import annotations

import contextlib
import random
import signal

import psutil
import pytest

from jupyter_ddl.client.clusters import Cluster
from jupyter_ddl.client.run import Run
from jupyter_ddl.client.session import session
from jupyter_ddl.protocol.cluster import ClusterSpec
from tests.leaks import Home
from tests.run_tools import (
    STEPS,
    assert_clean,
    outcomes,
    start_search,
    starts,
    table,
    wait_for,
    workers,
)
from tests.until import PATIENCE_S, until

pytestmark = pytest.mark.integration

TORCH = """
import time
import torch
from jupyter_ddl import checkpoint, loguniform, choice, report
lr = loguniform(1e-3, 1e-1)
width = choice(4, 8)
model = torch.nn.Sequential(torch.nn.Linear(3, width), torch.nn.Tanh(), torch.nn.Linear(width, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=lr)
inputs = torch.randn(64, 3)
targets = inputs.sum(dim=1, keepdim=True)
for step in range(4):
    time.sleep(0.05)
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    report(step=step, score=-loss.item())
    checkpoint(step=step, loss=loss.item())
"""


def kill_workers(run: Run, n_kills: int, seed: int, n_trials_between: int = 3) -> int:
    """SIGKILL a random worker each time that some further trials have finished; returns how many.

    Counted in trials, not in seconds: a search on a fast host would end before the last kill, and
    on a busy one workers would never come to begin a trial.
    """
    rng = random.Random(seed)
    done = 0

    def step() -> bool:
        nonlocal done
        snapshot, found = run.snapshot(), workers()
        is_due = snapshot.counts.finished >= n_trials_between * done
        if is_due and found and snapshot.counts.running:
            with contextlib.suppress(psutil.Error):
                rng.choice(found).kill()
                done += 1
        return done == n_kills or snapshot.finished_at_s is not None

    until(step, 20.0 * n_kills, "the kills")
    return done


def assert_undisturbed(run: Run, calm: Run, n_trials: int) -> None:
    assert run.state == "complete"
    assert_clean(run, n_trials)
    assert run.trials["own_failures"].sum() == 0
    assert run.trials["evictions"].sum() == run.snapshot().n_evictions
    assert table(run) == table(calm)


def test_ten_killed_workers_change_nothing_in_a_search_by_tpe(cluster: Cluster) -> None:
    options = {"sampler": "tpe", "seed": 11}
    calm = start_search(STEPS.replace("0.05", "0"), 50, **options).wait(PATIENCE_S)
    disturbed = start_search(STEPS, 50, **options)
    kills = kill_workers(disturbed, 10, seed=5)
    disturbed.wait(PATIENCE_S)
    assert kills == 10
    assert disturbed.snapshot().n_evictions > 0
    assert_undisturbed(disturbed, calm, 50)


def test_killed_workers_change_no_bit_of_what_torch_computes(stopping: Home) -> None:
    spec = ClusterSpec(name="test", n_workers=2, prewarm=("torch",))
    session().start(spec)
    options = {"sampler": "tpe", "seed": 2}
    calm = start_search(TORCH, 8, **options).wait(PATIENCE_S)
    disturbed = start_search(TORCH, 8, **options)
    wait_for(disturbed, lambda seen: seen.counts.running > 0)
    kill_workers(disturbed, 3, seed=4, n_trials_between=2)
    disturbed.wait(PATIENCE_S)
    assert disturbed.snapshot().n_evictions > 0
    assert_undisturbed(disturbed, calm, 8)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_sixty_killed_workers_lose_and_duplicate_no_trial(cluster: Cluster) -> None:
    calm = start_search(STEPS.replace("0.05", "0"), 250, seed=7).wait(PATIENCE_S)
    disturbed = start_search(STEPS, 250, seed=7)
    kills = kill_workers(disturbed, 60, seed=1)
    disturbed.wait(10 * PATIENCE_S)
    assert kills == 60
    assert disturbed.snapshot().n_evictions > 10
    assert_undisturbed(disturbed, calm, 250)


def test_a_stopped_worker_loses_its_trial_to_another_and_is_not_heard_later(
    stopping: Home,
) -> None:
    # Dask looks for silent workers every five seconds at most.
    session().start(ClusterSpec(name="test", n_workers=2, worker_timeout_s=2.0))
    cell = STEPS.replace("range(4)", "range(60)").replace("0.05", "0.1")
    run = start_search(cell, 2, seed=3)
    wait_for(run, lambda seen: seen.counts.running == 2)
    victim = workers()[0]
    victim.send_signal(signal.SIGSTOP)
    wait_for(run, lambda seen: seen.n_evictions > 0, 20.0)
    with contextlib.suppress(psutil.NoSuchProcess):
        victim.send_signal(signal.SIGCONT)  # what its rank has done meanwhile comes too late
    run.wait(PATIENCE_S)
    assert run.state == "complete"
    assert_clean(run, 2)
    assert len(outcomes(run, "evicted")) == 1
    assert len(starts(run)) == 3
