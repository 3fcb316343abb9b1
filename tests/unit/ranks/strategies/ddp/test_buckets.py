"""``--tune-buckets``: which sizes are tried, when each has its turn, and which one stays."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from jupyter_ddl.ranks.metrics import ReportError
from jupyter_ddl.ranks.strategies.ddp.buckets import (
    BucketTrials,
    candidates,
    choice_text,
    fastest,
)
from jupyter_ddl.ranks.strategies.ddp.strategy import DataParallel
from jupyter_ddl.ranks.strategies.steps import StepRequest, StepSettings

_CPU = torch.device("cpu")
_SMALL_MIB = 2**-14  # 64 bytes


class SmallBuckets(DataParallel):
    """With buckets that cut even the gradients of small models."""

    bucket_sizes_mib = (_SMALL_MIB, 25)


@pytest.mark.parametrize(
    ("n_mib", "sizes"),
    [(0.5, (25,)), (3, (1, 5, 25)), (30, (1, 5, 25, 100)), (400, (1, 5, 25, 100))],
)
def test_only_sizes_that_cut_gradients_differently_are_tried(
    n_mib: float, sizes: tuple[float, ...]
) -> None:
    assert candidates(int(n_mib * 2**20)) == sizes


def test_each_size_has_its_turn_there_and_back_and_first_steps_do_not_count() -> None:
    trials = BucketTrials((1, 25))
    used = []
    while (size := trials.size_mib) is not None:
        used.append(size)
        in_turn = (len(used) - 1) % 7
        trials.add(100.0 if in_turn < 2 else len(used))
    assert used == [1] * 7 + [25] * 14 + [1] * 7
    # Of 1 the 3rd to 7th and the 24th to 28th step, of 25 what is between.
    assert trials.medians_s == [(7 + 24) / 2, (14 + 17) / 2]


def test_the_fastest_size_stays_if_it_saves_enough() -> None:
    sizes = (1, 5, 25)
    assert fastest(sizes, [[1.0, 0.90, 1.0]]) == 5
    assert fastest(sizes, [[1.0, 0.99, 1.0]]) == 25
    # One rank that was held up once decides nothing; all decide by what all have measured.
    times = [[0.8, 1.0, 1.0], [0.8, 1.0, 1.0], [3.0, 1.0, 1.0]]
    assert fastest(sizes, times) == 1
    assert choice_text(sizes, times, 1) == (
        "--tune-buckets: gradients go in buckets of 1 MiB; forward and backward pass took 800 ms "
        "with 1 MiB, 1.0 s with 5 MiB, 1.0 s with 25 MiB"
    )
    assert "of 25 MiB, torch's own; forward" in choice_text(sizes, times, 25)


def _step(strategy: DataParallel, model: Any) -> Any:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = nn.functional.mse_loss
    return strategy.prepare_step(StepRequest(model, loss, optimizer, StepSettings(), _CPU))


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("chosen", [_SMALL_MIB, 25])
def test_steps_try_each_size_and_go_on_with_the_one_that_most_ranks_found_fastest(
    monkeypatch: Any, chosen: float
) -> None:
    strategy = SmallBuckets(tune_buckets=True)
    told: list[Any] = []
    strategy.tell = told.append
    others = [[1.0, 9.0], [1.0, 9.0]] if chosen == _SMALL_MIB else [[9.0, 1.0], [9.0, 1.0]]
    monkeypatch.setattr(strategy.exchange, "gather_json", lambda mine: [mine, *others])
    step = _step(strategy, nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2)))
    sizes = []
    for _ in range(30):
        sizes.append(step.model.bucket_bytes_cap / 2**20)
        step(torch.randn(6, 4), torch.randn(6, 2))
    assert sizes[:28] == [_SMALL_MIB] * 7 + [25] * 14 + [_SMALL_MIB] * 7
    assert sizes[28:] == [chosen] * 2
    (text,) = told
    assert text.startswith(f"--tune-buckets: gradients go in buckets of {chosen:g} MiB")


@pytest.mark.usefixtures("alone")
def test_where_there_is_nothing_to_choose_one_sentence_says_so() -> None:
    strategy = DataParallel(tune_buckets=True)
    told: list[Any] = []
    strategy.tell = told.append
    step = _step(strategy, nn.Linear(4, 2))
    step(torch.randn(6, 4), torch.randn(6, 2))
    assert told == [
        "--tune-buckets: gradients of 40 B fit in one bucket of every size; there is nothing "
        "to choose"
    ]


@pytest.mark.usefixtures("alone")
def test_a_loop_by_hand_and_a_model_that_is_wrapped_already_are_refused() -> None:
    strategy = DataParallel(tune_buckets=True)
    with pytest.raises(ReportError, match=r"measures whole steps; leave model .* prepare_step\("):
        strategy.wrap(nn.Linear(4, 2), _CPU)
    with pytest.raises(ReportError, match="give it the model itself"):
        _step(strategy, DistributedDataParallel(nn.Linear(4, 2)))
