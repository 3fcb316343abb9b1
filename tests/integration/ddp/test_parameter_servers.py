"""Ranks that keep the parameters for others, in processes of their own and in a run."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import pytest

from jupyter_ddl import train
from jupyter_ddl.errors import TrialError
from jupyter_ddl.testing import strategies
from tests.integration.ddp.answering import answer, answers_of

pytestmark = pytest.mark.integration

_N_FAST = 5

CELL = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
saved = resume()
step = prepare_step(model, torch.nn.functional.mse_loss, optimizer)
data = torch.utils.data.TensorDataset(torch.linspace(-1, 1, 63).reshape(21, 3), torch.ones(21, 1))
losses = []
for epoch in range(2):
    for x, y in prepare(torch.utils.data.DataLoader(data, batch_size=8)):
        losses.append(step(x, y).item())
    report(epoch, reduce="mean", loss=losses[-1])
checkpoint(step=2, model=model, optimizer=optimizer)
losses, rank(), world_size()
"""


def _train_freely(rank: int, folder: str, answers: Any) -> None:
    """Two workers and a server; the second worker's first gradient comes behind five of the first.

    Each answers with what it has to say, or with its traceback.
    """
    import torch
    import torch.distributed as dist

    from jupyter_ddl.protocol.group import RankPlace
    from jupyter_ddl.ranks.stopping import TrialStopped
    from jupyter_ddl.ranks.training import Training

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=3)
    store = dist.distributed_c10d._get_default_store()
    options: dict[str, Any] = {"max_staleness": 2, "compress": "fp16"}
    place = RankPlace("g", rank, 3, strategy="ps-async", strategy_options=options)
    told: list[Any] = []
    training = Training(place, seed=3, tell=told.append)
    model = torch.nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen: list[int] = []

    def loss_fn(output: Any, target: Any) -> Any:
        seen.append(0)
        if rank == 1 and len(seen) == 1:
            store.wait(["the first worker is done"])
        return torch.nn.functional.mse_loss(output, target)

    found: Any
    try:
        settings = {"accumulate": 1, "clip_norm": None, "amp": None}
        step = training.prepare_step(model, loss_fn, optimizer, settings, torch.device("cpu"))
        for _ in range(_N_FAST if rank == 0 else 2):
            step(torch.ones(2, 8), torch.ones(2, 4))
        training.leave("complete")
        store.set("the first worker is done", "1")
        strategy: Any = training.strategy
        found = [model.weight.sum().item(), strategy.bytes_sent]
    except TrialStopped as stopped:
        (last,) = told[-1:]
        found = [stopped.reason, list(last.counts), last.n_dropped]
    except Exception:  # noqa: BLE001 - the test tells what went wrong
        found = traceback.format_exc()
    answer(rank, found, answers)


def _go_on(rank: int, folder: str, answers: Any) -> None:
    """Two workers and a server go on from what one process has saved; one worker ends early."""
    import torch
    import torch.distributed as dist

    from jupyter_ddl.protocol.group import RankPlace
    from jupyter_ddl.ranks.stopping import TrialStopped
    from jupyter_ddl.ranks.training import Training

    torch.set_num_threads(1)
    settings = {"accumulate": 2, "clip_norm": 0.5, "amp": None}
    expected = strategies._trained_by_steps(strategies._alone(), settings)
    dist.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=3)
    training = Training(RankPlace("g", rank, 3, strategy="ps-sync"), seed=strategies._SEED)
    found: Any
    try:
        trained = strategies._trained_by_steps(training, settings, rank=rank, begun=expected.middle)
        found = strategies._differences(trained.end, expected.end, atol=1e-9)
        assert trained.losses == pytest.approx(expected.losses, abs=1e-9)
        if rank == 0:
            strategy: Any = training.strategy
            batch = (torch.ones(2, 4).double(), torch.ones(2, 2).double())
            found += [] if strategy._step(*batch).isfinite() else ["the step alone"]
        training.leave("complete")
    except TrialStopped as stopped:
        found = stopped.reason
    except Exception:  # noqa: BLE001 - the test tells what went wrong
        found = traceback.format_exc()
    answer(rank, found, answers)


def test_workers_go_on_from_a_checkpoint_of_one_process_and_without_one_that_ends_early(
    tmp_path: Path,
) -> None:
    assert answers_of(_go_on, tmp_path, 3) == [[], [], "complete"]


def test_nobody_waits_for_a_slow_worker_and_what_it_brings_too_late_is_dropped(
    tmp_path: Path,
) -> None:
    """In rounds the first worker's second step would wait for the second worker for ever."""
    got = first, second, server = answers_of(_train_freely, tmp_path, 3)
    # Six gradients of the parameters as they were; one from those of five updates before.
    assert server == ["complete", [_N_FAST + 1], 1], got
    n_weights = 8 * 4 + 4
    assert first[1] > second[1] > 2 * 2 * n_weights
    assert first[0] != second[0]


def test_a_run_trains_on_one_rank_and_keeps_parameters_on_the_other(cluster: object) -> None:
    alone = train(CELL, 1, namespace={}, bring=["model"])
    run = train(CELL, 2, namespace={}, strategy="ps-sync", bring=["model"])
    (losses, number, count), served = run.values
    assert served is None
    assert (number, count) == (0, 1)
    assert losses == pytest.approx(alone.values[0][0], rel=1e-4)
    brought, plain = run.value("model"), alone.value("model")
    assert brought[2].weight.flatten().tolist() == pytest.approx(
        plain[2].weight.flatten().tolist(), rel=1e-4
    )
    n_steps, n_weights = len(losses), 3 * 8 + 8 + 8 + 1
    # Gradients there and parameters back at each step, and what training begins with.
    assert (run.bytes_sent or 0) > (2 * n_steps + 1) * 4 * n_weights
    # Each gives the other as much in a step; the server has no step of its own to measure.
    ranks = run.ranks
    assert list(ranks.steps) == [n_steps, n_steps]
    assert all(ranks.bytes_per_step >= 4 * n_weights)
    assert (ranks.bytes_per_step * n_steps).sum() == pytest.approx(run.bytes_sent)
    assert list(ranks.step_ms.isna()) == [False, True]
    assert all(ranks.peak_memory_bytes > 50 << 20), "each has imported torch"
    halved = train(CELL, 2, namespace={}, strategy="ps-sync", compress="fp16")
    saved = (run.bytes_sent or 0) - (halved.bytes_sent or 0)
    assert saved == pytest.approx(n_steps * 2 * n_weights, abs=40), "words beside them differ"
    with pytest.raises(TrialError, match="brought nothing"):
        run.value("model", rank=1)


def test_a_run_records_how_late_gradients_came(cluster: object) -> None:
    run = train(CELL, 2, namespace={}, strategy="ps-async", max_staleness=1)
    (losses, _, _), _ = run.values
    assert run.staleness == [len(losses)]  # a worker alone is never late
    assert "6 gradients used, 0 dropped" in repr(run.plot.staleness())
