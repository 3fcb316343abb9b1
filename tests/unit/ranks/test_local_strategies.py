"""Local SGD and DiLoCo in a group of one: meetings, the outer optimizer, unequal starts."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist

from jupyter_ddl.protocol.group import RankPlace
from jupyter_ddl.ranks.metrics import ReportError
from jupyter_ddl.ranks.strategies import exchange
from jupyter_ddl.ranks.strategies.local_sgd import strategy as local
from jupyter_ddl.ranks.strategies.steps import StepRequest, StepSettings
from jupyter_ddl.ranks.training import PRIVATE_KEY, Training
from jupyter_ddl.testing.process_groups import end_process_group

_CPU = torch.device("cpu")
_PLAIN = {"accumulate": 1, "clip_norm": None, "amp": None}


@pytest.fixture(autouse=True)
def group() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    end_process_group()


def _training(name: str, **options: Any) -> Training:
    place = RankPlace("g", world_size=1, strategy=name, strategy_options=options)
    return Training(place, seed=3)


def _made(training: Training) -> tuple[Any, Any, Any]:
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = torch.nn.functional.mse_loss
    return model, optimizer, training.prepare_step(model, loss, optimizer, _PLAIN, _CPU)


def _batch() -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(1)
    return (
        torch.randn(4, 3, generator=generator, dtype=torch.float64),
        torch.randn(4, 1, generator=generator, dtype=torch.float64),
    )


def test_diloco_goes_on_by_nesterovs_momentum_from_one_meeting_to_the_next() -> None:
    """Against torch's own SGD, which is given the way to the mean for a gradient."""
    model, _, step = _made(_training("diloco", sync_every=2, outer_lr=0.7, outer_momentum=0.9))
    inner = copy.deepcopy(model)
    outer = [torch.nn.Parameter(each.detach().clone()) for each in inner.parameters()]
    by_torch = torch.optim.SGD(outer, lr=0.7, momentum=0.9, nesterov=True)
    optimizer = torch.optim.SGD(inner.parameters(), lr=0.1)
    for number in range(1, 7):
        step(*_batch())
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(inner(_batch()[0]), _batch()[1]).backward()
        optimizer.step()
        if number % 2 == 0:
            for common, here in zip(outer, inner.parameters(), strict=True):
                common.grad = common.detach() - here.detach()
            by_torch.step()
            with torch.no_grad():
                for common, here in zip(outer, inner.parameters(), strict=True):
                    here.copy_(common)
            torch.testing.assert_close(dict(model.state_dict()), dict(inner.state_dict()))


def test_ranks_send_nothing_but_at_meetings() -> None:
    training = _training("local-sgd", sync_every=3)
    _, _, step = _made(training)
    assert training.strategy is not None
    step(*_batch())
    began = training.strategy.bytes_sent
    step(*_batch())
    assert training.strategy.bytes_sent == began
    step(*_batch())
    assert training.strategy.bytes_sent == began + 4 * 8


def test_a_run_that_goes_on_from_a_checkpoint_is_the_one_that_wrote_it() -> None:
    training = _training("diloco", sync_every=2, outer_momentum=0.5)
    model, optimizer, step = _made(training)
    for _ in range(3):
        step(*_batch())
    assert training.is_collective({"model": model})
    assert not training.is_collective({"step": 3})
    state = training.plain_state({"model": model, "optimizer": optimizer}, keep=True)
    saved = copy.deepcopy(state)
    assert len(saved[PRIVATE_KEY]["strategy"]["velocities"]) == 2
    later = _training("diloco", sync_every=2, outer_momentum=0.5)
    again, other, go_on = _made(later)
    restored = later.restore(saved)
    again.load_state_dict(restored["model"])
    other.load_state_dict(restored["optimizer"])
    for _ in range(2):
        step(*_batch())
        go_on(*_batch())
    torch.testing.assert_close(again.weight, model.weight, rtol=0.0, atol=0.0)


def test_velocities_of_a_checkpoint_go_where_the_model_is() -> None:
    strategy = local.DiLoCo()
    strategy.restore_extra({"velocities": [torch.ones(2)]})
    elsewhere = [torch.empty(2, device="meta")]
    strategy.exchange = SimpleNamespace(means=list)  # type: ignore[assignment]
    strategy.begin(elsewhere)
    strategy.meet(elsewhere)
    assert strategy.extra_state()["velocities"][0].device.type == "meta"


def test_saving_behind_a_meeting_is_no_second_one() -> None:
    training = _training("diloco", sync_every=1)
    model, optimizer, step = _made(training)
    step(*_batch())
    before = model.weight.detach().clone()
    for _ in range(2):
        training.plain_state({"model": model, "optimizer": optimizer}, keep=True)
    assert torch.equal(model.weight, before)


def test_a_batch_that_the_cell_has_changed_counts_by_its_own_samples() -> None:
    """As where it cuts a loader's batch in two, or adds to it: the step must not grow or shrink."""
    trained = []
    for share in (None, (2, 2), (4, 4)):
        model = torch.nn.Linear(3, 1).double()
        torch.nn.init.ones_(model.weight)
        torch.nn.init.zeros_(model.bias)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loss = torch.nn.functional.mse_loss
        request = StepRequest(model, loss, optimizer, StepSettings(), _CPU, lambda _, s=share: s)
        local.LocalSgd().prepare_step(request)(*_batch())
        trained.append(model.weight.detach())
    assert torch.equal(trained[0], trained[1])
    assert torch.equal(trained[0], trained[2])


def test_ranks_that_begin_with_other_parameters_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, _, step = _made(_training("diloco"))
    monkeypatch.setattr(exchange.Exchange, "gather_json", lambda _, own: [own, own, "other"])
    with pytest.raises(ReportError, match="rank 2 would begin with other parameters than rank 0"):
        step(*_batch())


def test_a_loop_by_hand_and_a_second_model_are_refused() -> None:
    training = _training("local-sgd")
    with pytest.raises(ReportError, match=r"write `step = prepare_step\(model, loss_fn, optimi"):
        training.prepare((torch.nn.Linear(1, 1),), _CPU)
    _made(training)
    with pytest.raises(ReportError, match="a cell trains one model"):
        _made(training)


def test_complex_parameters_and_their_moments_meet_too() -> None:
    """A rank's share would otherwise be all that a checkpoint knows of them."""
    training = _training("local-sgd", sync_every=1)
    model = torch.nn.Linear(2, 1, dtype=torch.complex128)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    step = training.prepare_step(
        model, lambda output, y: (output - y).abs().square().mean(), optimizer, _PLAIN, _CPU
    )
    strategy: Any = training.strategy
    met: list[Any] = []
    strategy.exchange.means = lambda tensors: [
        met.append(each.shape) or 2 * each for each in tensors
    ]
    step(torch.ones(3, 2, dtype=torch.complex128), torch.zeros(3, 1, dtype=torch.complex128))
    assert met == [(1, 2), (1,)]
    before = optimizer.state[model.weight]["momentum_buffer"].clone()
    found = training.plain_state({"optimizer": optimizer}, keep=True)["optimizer"]["state"]
    torch.testing.assert_close(found[0]["momentum_buffer"], 2 * before)
