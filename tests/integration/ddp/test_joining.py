"""Ranks that join in the middle of a round: on slots that are new, and in place of lost ones."""

from __future__ import annotations

import signal

import pytest

from jupyter_ddl.ledger.audit import audit
from jupyter_ddl.protocol.events import (
    AttemptStarted,
    CheckpointSaved,
    Notice,
    RankEnded,
    RankStarted,
    Reported,
)
from tests.integration.ddp.fault_runs import Started, kill, start
from tests.run_tools import worker_of
from tests.until import until

pytestmark = pytest.mark.integration

_PATIENCE_S = 60.0

TRAIN = """
import time
import torch
torch.manual_seed(rank())
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.0005)
step = prepare_step(model, torch.nn.functional.mse_loss, optimizer)
x, y = torch.ones(4, 3), torch.ones(4, 1)
for number in range(10**9):
    loss = step(x, y).item()
    report(step=number, reduce="mean", loss=loss)
    time.sleep(0.01)
"""
"""A report of each step, without an end of its own and without a checkpoint."""

STRATEGIES = {
    "ps-async": {},
    "ps-sync": {},
    "local-sgd": {"sync_every": 4},
    "diloco": {"sync_every": 4, "outer_lr": 1.0, "outer_momentum": 0.0},
}


def _training(strategy: str, n_ranks: int, **options: object) -> Started:
    return start(
        TRAIN,
        n_ranks,
        strategy=strategy,
        strategy_options=STRATEGIES[strategy],
        max_own_failures=1,
        **options,
    )


def _servers(strategy: str) -> int:
    return int(strategy.startswith("ps-"))


def _wait_for_report(run: Started, rank: int, since_s: float = 0.0) -> Reported:
    """Of one that joins it tells that it makes steps: before, it passes over what others do."""

    def found() -> list[Reported]:
        reports = run.events(Reported)
        return [event for event in reports if event.rank == rank and event.at_s > since_s]

    return until(found, _PATIENCE_S, f"a report of rank {rank}")[0]


def _assert_one_round(run: Started) -> None:
    assert len(run.events(AttemptStarted)) == 1
    assert run.events(CheckpointSaved) == []
    run.stop()
    assert audit(run.all_events()) == []


def _notices(run: Started) -> list[str]:
    return [event.text for event in run.events(Notice)]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_ranks_for_which_there_was_no_slot_join_when_there_are_some(
    strategy: str, cluster: object
) -> None:
    n_ranks = 3 + _servers(strategy)
    run = _training(strategy, n_ranks, min_ranks=2, resize_after_s=0.2)
    first = _wait_for_report(run, 0)
    text = f"started with 2 of {n_ranks} ranks: no more slots are free; the others join"
    assert any(notice.startswith(text) for notice in _notices(run))
    for n_slots in range(3, n_ranks + 1):
        cluster.scale(n_slots)  # type: ignore[attr-defined]
        joined = _wait_for_report(run, n_slots - 1 - _servers(strategy))
        assert joined.step > first.step
        assert joined.metrics["loss"] < first.metrics["loss"], "it has begun anew"
    last = run.events(Reported)[-1]
    assert _wait_for_report(run, 0, last.at_s).step > last.step, "the first rank has stopped"
    joining = [event for event in run.events(RankStarted) if event.life > 1]
    assert {event.world_size for event in run.events(RankStarted)} == {n_ranks}
    assert sorted(event.rank for event in joining) == ([1, 2] if _servers(strategy) else [2])
    assert "a slot is free: rank 2 is started, and joins the others" in _notices(run)
    _assert_one_round(run)


@pytest.mark.parametrize("strategy", ["ps-async", "diloco"])
def test_a_rank_whose_worker_is_killed_joins_on_another_one(strategy: str, cluster: object) -> None:
    n_ranks = 2 + _servers(strategy)
    cluster.scale(n_ranks)  # type: ignore[attr-defined]
    run = _training(strategy, n_ranks)
    _wait_for_report(run, 1)
    until(lambda: set(run.pids(1)) == set(range(n_ranks)), 10.0, "the ranks' starts")
    killed_at_s = kill(worker_of(run.pids(1)[1]).pid, signal.SIGKILL)
    until(lambda: any(event.life > 1 for event in run.events(RankStarted)), _PATIENCE_S, "it")
    began_s = run.events(RankStarted)[-1].at_s
    alone = _wait_for_report(run, 0, killed_at_s)
    assert _wait_for_report(run, 1, began_s).step > alone.step
    (lost,) = (event for event in run.events(RankEnded) if event.others_go_on)
    assert (lost.rank, lost.failure and lost.failure.kind) == (1, "launch")
    assert "there is another worker: rank 1 is started, and joins the others" in _notices(run)
    _assert_one_round(run)
