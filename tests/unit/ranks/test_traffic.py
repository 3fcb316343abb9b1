"""What steps send: counted by each rank, told with its times, added up over ranks and rounds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist

from jupyter_ddl.protocol.group import RankPlace
from jupyter_ddl.ranks.step_times import watch_strategy
from jupyter_ddl.ranks.training import Training
from jupyter_ddl.testing.process_groups import end_process_group

_CPU = torch.device("cpu")
_NUMBERS = 2 * 8
"""How many samples there are, and the loss, in a sum of their own."""
_BESIDE = 2 * 4
"""The same as gradients among others."""


@pytest.fixture(autouse=True)
def group() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    watch_strategy(None)
    end_process_group()


def _sent(n_steps: int, accumulate: int = 1, **options: Any) -> int | None:
    place = RankPlace("g", world_size=1, strategy="ddp", strategy_options=options)
    training = Training(place, seed=3)
    model = torch.nn.Sequential(torch.nn.Linear(40, 50), torch.nn.BatchNorm1d(50))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    settings = {"accumulate": accumulate, "clip_norm": None, "amp": None}
    loss = torch.nn.functional.mse_loss
    step = training.prepare_step(model, loss, optimizer, settings, _CPU)
    for _ in range(n_steps):
        step(torch.randn(4, 40), torch.randn(4, 50))
    assert training.strategy is not None
    return training.strategy.bytes_sent


_FIRST = 8
"""Before the first step: how many samples a batch has."""
_N_WEIGHTS = 40 * 50
_N_OTHERS = 50 + 2 * 50
_BUFFERS = (50 + 50) * 4 + 8


def test_an_averaged_gradient_counts_once_however_its_batch_is_cut() -> None:
    each = (_N_WEIGHTS + _N_OTHERS) * 4 + _BESIDE + _BUFFERS
    assert _sent(3) == _FIRST + 3 * each
    assert _sent(3, accumulate=2) == _FIRST + 3 * each


@pytest.mark.parametrize("kind", ["fp16", "bf16"])
def test_half_as_many_bytes_are_sent_of_compressed_gradients(kind: str) -> None:
    each = (_N_WEIGHTS + _N_OTHERS) * 2 + _NUMBERS + _BUFFERS
    assert _sent(3, compress=kind) == _FIRST + 3 * each


def test_parts_of_a_batch_send_nothing_of_their_own() -> None:
    """Compressed gradients are counted at each call of the hook that sends them."""
    assert _sent(3, accumulate=2, compress="fp16") == _sent(3, compress="fp16")


def test_powersgd_sends_whole_gradients_first_and_thin_matrices_then() -> None:
    whole = (_N_WEIGHTS + _N_OTHERS) * 4 + _NUMBERS + _BUFFERS
    thin = (4 * (40 + 50) + _N_OTHERS) * 4 + _NUMBERS + _BUFFERS
    assert _sent(12, compress="powersgd") == _FIRST + 10 * whole + 2 * thin
