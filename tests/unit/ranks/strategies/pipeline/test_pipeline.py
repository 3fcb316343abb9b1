"""A pipeline of one stage: what it refuses, and what its step leaves as it was.

What several ranks compute together is held to one process by the strategies' contract.
"""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from jupyter_ddl.ranks.metrics import ReportError
from jupyter_ddl.ranks.strategies.exchange import Exchange
from jupyter_ddl.ranks.strategies.pipeline import cutting, owners
from jupyter_ddl.ranks.strategies.pipeline.dry_pass import DryPass, Wish, metas_of
from jupyter_ddl.ranks.strategies.pipeline.stages import Stages
from jupyter_ddl.ranks.strategies.pipeline.strategy import Pipeline
from jupyter_ddl.ranks.strategies.steps import StepRequest, StepSettings

pytestmark = pytest.mark.usefixtures("alone")

_CPU = torch.device("cpu")


def _step(model: Any, *, lr: float = 0.1, amp: Any = None, **options: Any) -> Any:
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    settings = StepSettings(amp=amp)
    parts = StepRequest(model, nn.functional.mse_loss, optimizer, settings, _CPU)
    return Pipeline(**options).prepare_step(parts)


def _chain(*more: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), *more, nn.Linear(4, 2))


class _Residual(nn.Module):  # type: ignore[misc]  # torch is not followed
    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(3, 3)
        self.other = nn.Linear(3, 3)

    def forward(self, x: Any) -> Any:
        return x + self.other(self.one(x))


class _Narrow(nn.Module):  # type: ignore[misc]  # torch is not followed
    """Returns as many features as the values ask for."""

    def forward(self, x: Any) -> Any:
        return x[:, :1] if x.abs().mean() > 5 else x


class _Length(nn.Module):  # type: ignore[misc]  # torch is not followed
    def forward(self, x: Any) -> Any:
        return x.abs()


class _Raising(nn.Module):  # type: ignore[misc]  # torch is not followed
    def forward(self, x: Any) -> Any:
        if x.mean() > 5:
            raise KeyError("of the user's own")
        return x


class _Slow(nn.Module):  # type: ignore[misc]  # torch is not followed
    def forward(self, x: Any) -> Any:
        until_s = time.thread_time() + 0.02
        while time.thread_time() < until_s:
            pass
        return x


def test_stages_are_cut_where_they_fit_into_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    # A clock of the processor: others on this machine may hold up any part.
    monkeypatch.setattr(cutting, "time", SimpleNamespace(perf_counter=time.thread_time))
    model = nn.Sequential(nn.Tanh(), nn.Tanh(), _Slow(), _Slow())
    x = torch.ones(4, 1000)
    look_of = DryPass(
        model, cutting.parts_of(model), Wish("gpipe", 2, 2), StepSettings(), _CPU
    )._looked_at
    assert look_of(x, 2, 1e9).kept_bytes == (x.nbytes, x.nbytes, 0, 0)
    assert look_of(x, 2, 1e9).starts == (0, 3)
    # Each stage has two micro-batches on their way, and room for three tensors.
    assert look_of(x, 2, 3 * x.nbytes / 0.8).starts == (0, 1)


def test_a_forward_that_is_no_chain_is_refused() -> None:
    with pytest.raises(ReportError, match=r"runs the children of _Residual one after another"):
        _step(_Residual())(torch.ones(4, 3), torch.ones(4, 3))


def test_statistics_of_tiny_micro_batches_are_refused() -> None:
    model = _chain(nn.BatchNorm1d(4))
    with pytest.raises(ReportError, match=r"gives '1' \(BatchNorm\) micro-batches of 4 samples"):
        _step(model, microbatches=4)(torch.ones(16, 3), torch.ones(16, 2))
    _step(model, microbatches=2)(torch.ones(16, 3), torch.ones(16, 2))


def test_what_is_not_one_tensor_and_a_target_is_refused() -> None:
    step = _step(_chain())
    with pytest.raises(ReportError, match=r"got 3 arguments, the first one a Tensor"):
        step(torch.ones(4, 3), torch.ones(4, 3), torch.ones(4, 2))


def test_a_target_that_is_not_cut_as_the_input_is_refused() -> None:
    step = _step(_chain())
    for target, shape in ((torch.ones(3, 2), r"\(3, 2\)"), (torch.tensor(1.0), r"\(\)")):
        with pytest.raises(ReportError, match=f"a target of shape {shape} for 4 samples"):
            step(torch.ones(4, 3), target)


def test_complex_parts_train_within_a_stage_and_are_not_sent_between_two() -> None:
    model = nn.Sequential(nn.Linear(3, 2, dtype=torch.complex64), _Length())
    x = torch.ones(4, 3, dtype=torch.complex64)
    step = _step(model)
    before = model[0].weight.detach().clone()
    step(x, torch.zeros(4, 2))
    assert not torch.equal(model[0].weight, before)
    with pytest.raises(ReportError, match=r"'0' returned complex64; expected torch\.view_as_real"):
        list(metas_of(step._parts, x, [torch.ones_like(x), torch.ones(4, 2)], [0, 1]))


def test_a_refusal_that_all_ranks_repeat_has_its_code_once() -> None:
    with pytest.raises(ReportError, match="expected at least 8") as refusal:
        _step(_chain(nn.BatchNorm1d(4)), microbatches=4)(torch.ones(16, 3), torch.ones(16, 2))
    assert str(refusal.value).count(refusal.value.code) == 1


def test_a_shape_that_depends_on_values_is_refused_when_it_changes() -> None:
    step = _step(nn.Sequential(nn.Linear(3, 3), nn.Flatten(), _Narrow()), microbatches=2)
    step(torch.ones(4, 3), torch.ones(4, 3))
    with pytest.raises(ReportError, match=r"'2' to return a tensor of shape \(2, 3\) .* \(2, 1\)"):
        step(torch.full((4, 3), 99.0), torch.ones(4, 3))


def test_an_error_of_the_users_code_keeps_its_type_and_traceback() -> None:
    step = _step(nn.Sequential(_Raising(), nn.Linear(3, 2)))
    step(torch.ones(4, 3), torch.ones(4, 2))
    with pytest.raises(KeyError, match="of the user's own") as raised:
        step(torch.full((4, 3), 99.0), torch.ones(4, 2))
    last = raised.traceback[-1]
    assert (last.name, last.path) == ("forward", Path(__file__))


def test_batches_may_change_their_shape_and_be_short() -> None:
    model, plain = _chain(), _chain()
    step = _step(model, microbatches=4)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(2)
    for shape in ((8, 3), (3, 3), (9, 3), (5, 2, 3), (8, 3)):
        x = torch.randn(shape, generator=generator)
        y = torch.randn((*shape[:-1], 2), generator=generator)
        optimizer.zero_grad()
        expected = nn.functional.mse_loss(plain(x), y)
        expected.backward()
        optimizer.step()
        assert step(x, y).item() == pytest.approx(expected.item(), rel=1e-5)
    for found, wanted in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(found, wanted, atol=1e-6)


def test_what_is_sent_is_counted_for_each_part_of_an_accumulated_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Stages, "bytes_per_batch", 1000)
    model = _chain()
    made = Pipeline(microbatches=2)
    settings = StepSettings(accumulate=3)
    optimizer = torch.optim.SGD(model.parameters())
    parts = StepRequest(model, nn.functional.mse_loss, optimizer, settings, _CPU)
    step = made.prepare_step(parts)
    step(torch.ones(6, 3), torch.ones(6, 2))
    before = made.bytes_sent
    step(torch.ones(6, 3), torch.ones(6, 2))
    assert before is not None
    assert made.bytes_sent == before + 3 * 1000 + 2 * 8  # and the loss with the norm


class _Moved(nn.BatchNorm1d):  # type: ignore[misc]  # torch is not followed
    """Like one that goes to a GPU: its buffers are other objects then."""

    def to(self, *_: Any, **__: Any) -> Any:
        self.running_mean = self.running_mean.clone()
        return self


def test_a_second_look_at_the_model_leaves_stages_and_buffers_with_their_ranks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: dict[int, int] = {}
    monkeypatch.setattr(owners, "_broadcast", lambda each, owner: sent.update({id(each): owner}))
    monkeypatch.setattr(owners.dist, "get_world_size", lambda: 2)
    model = nn.Sequential(_Moved(3), _Moved(3))
    optimizer = torch.optim.SGD(model.parameters())
    known = owners.Owners(model, Exchange())
    for _ in range(2):
        for part in model:  # rank 0 runs all of it, and puts it back
            part.to(_CPU)
        before = model[0].running_mean
        known.assign(cutting.parts_of(model), (0, 1), optimizer, _CPU)
        assert model[0].running_mean is not before  # its own stage went to its device
        known.changed()
        known.collect()
        assert [sent[id(part.running_mean)] for part in model] == [0, 1]


def test_what_a_checkpoint_gave_an_optimizer_goes_with_the_stages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was loaded when the whole model was on the CPU."""
    followed: list[tuple[Any, bool]] = []
    model = nn.Sequential(_Moved(3), _Moved(3))
    optimizer = torch.optim.SGD(model.parameters())
    before = model[0].running_mean

    def follow(each: Any) -> None:
        followed.append((each, model[0].running_mean is not before))

    monkeypatch.setattr(owners, "follow_parameters", follow)
    known = owners.Owners(model, Exchange())
    known.assign(cutting.parts_of(model), (0, 1), optimizer, _CPU)
    assert followed == [(optimizer, True)]


def test_the_first_pass_changes_neither_statistics_nor_modes_nor_random_numbers() -> None:
    model = _chain(nn.BatchNorm1d(4), nn.Dropout(0.5))
    model[2].eval()
    step = _step(model, lr=0.0, microbatches=1)
    torch.manual_seed(5)
    expected = torch.get_rng_state()
    step(torch.ones(4, 3), torch.ones(4, 2))
    assert torch.equal(torch.get_rng_state(), expected)
    assert model[1].num_batches_tracked == 1
    assert [part.training for part in model] == [True, True, False, True]


@pytest.mark.parametrize("amp", [torch.bfloat16, torch.float16])
def test_sixteen_bits_train_and_gradients_that_overflow_are_left_out(amp: Any) -> None:
    model = _chain(nn.Tanh())
    step = _step(model, amp=amp, microbatches=2)
    x, y = torch.randn(8, 3), torch.zeros(8, 2)
    first = step(x, y).item()
    assert step(x, y).item() < first
    before = model[0].weight.detach().clone()
    step(torch.full((8, 3), float("inf")), y)
    is_kept = torch.equal(model[0].weight, before)
    assert is_kept is (amp is torch.float16)


def test_a_schedule_without_enough_micro_batches_is_refused_before_a_batch_is_seen() -> None:
    with pytest.raises(ReportError, match="--split 1,2 makes 3 stages; expected 1"):
        _step(_chain(nn.Tanh()), split="1,2")


def test_what_was_prepared_is_an_ordinary_model_when_it_is_brought_back() -> None:
    model = _chain()
    made = Pipeline()
    parts = StepRequest(
        model, nn.functional.mse_loss, torch.optim.SGD(model.parameters()), StepSettings(), _CPU
    )
    made.prepare_step(parts)(torch.ones(4, 3), torch.ones(4, 2))
    assert made.unwrap(model) is model
    assert not model._forward_pre_hooks
    assert not model._state_dict_pre_hooks
