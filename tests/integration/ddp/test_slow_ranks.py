"""Ranks of unequal speed under local SGD: a fast one waits where they meet, and nowhere else."""

from __future__ import annotations

import traceback
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.integration.ddp.answering import answer, answers_of

pytestmark = pytest.mark.integration

_EVERY = 4
_N_ROUNDS = 3
_WAIT = timedelta(seconds=30)
"""Until the fast rank has come to its last step before a meeting."""


def _batches(rank: int) -> list[tuple[Any, Any]]:
    import torch

    generator = torch.Generator().manual_seed(rank)
    return [
        tuple(torch.randn(4, n, generator=generator, dtype=torch.float64) for n in (3, 1))
        for _ in range(_EVERY * _N_ROUNDS)
    ]


def _made() -> tuple[Any, Any]:
    import torch

    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1).double()
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def _train(rank: int, folder: str, answers: Any) -> None:
    """Rank 1 begins none of its steps behind a meeting before rank 0 is at its last one."""
    import torch
    import torch.distributed as dist

    from jupyter_ddl.protocol.group import RankPlace
    from jupyter_ddl.ranks.training import Training

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=2)
    store = dist.distributed_c10d._get_default_store()
    options = {"sync_every": _EVERY}
    place = RankPlace("g", rank, 2, strategy="local-sgd", strategy_options=options)
    training = Training(place, seed=3)
    model, optimizer = _made()
    n_steps = 0

    def loss_fn(output: Any, target: Any) -> Any:
        nonlocal n_steps
        n_round, at = divmod(n_steps, _EVERY)
        n_steps += 1
        if rank == 1 and at == 0:
            store.wait([f"fast/{n_round}"], _WAIT)
        elif rank == 0 and at == _EVERY - 1:
            store.set(f"fast/{n_round}", "1")
        return torch.nn.functional.mse_loss(output, target)

    found: Any
    try:
        settings = {"accumulate": 1, "clip_norm": None, "amp": None}
        step = training.prepare_step(model, loss_fn, optimizer, settings, torch.device("cpu"))
        for x, y in _batches(rank):
            step(x, y)
        training.leave("complete")
        found = [*model.weight.flatten().tolist(), model.bias.item()]
    except Exception:  # noqa: BLE001 - the test tells what went wrong
        found = traceback.format_exc()
    answer(rank, found, answers)


def _in_one_process() -> list[float]:
    """Two models, each with the batches of one rank, that are averaged every so many steps."""
    import torch

    pairs = [_made(), _made()]
    given = [_batches(0), _batches(1)]
    for number in range(_EVERY * _N_ROUNDS):
        for (model, optimizer), batches in zip(pairs, given, strict=True):
            x, y = batches[number]
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
        if (number + 1) % _EVERY == 0:
            with torch.no_grad():
                for each in zip(*(model.parameters() for model, _ in pairs), strict=True):
                    mean = torch.stack(list(each)).mean(0)
                    for parameter in each:
                        parameter.copy_(mean)
    model = pairs[0][0]
    return [*model.weight.flatten().tolist(), model.bias.item()]


def test_a_fast_rank_waits_for_a_slow_one_where_they_meet_and_all_come_to_the_same(
    tmp_path: Path,
) -> None:
    told = answers_of(_train, tmp_path, 2)
    expected = pytest.approx(_in_one_process(), abs=1e-9)
    for rank, found in enumerate(told):
        assert isinstance(found, list), f"rank {rank}:\n{found}"
        assert found == expected
