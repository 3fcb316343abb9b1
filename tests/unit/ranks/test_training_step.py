"""The step that ``prepare_step`` makes: alone, and what it refuses before anything is trained."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import jupyter_ddl
from jupyter_ddl.errors import OptionError
from jupyter_ddl.ranks.loader import PreparedLoader, Progress, prepare_loader, share_of
from jupyter_ddl.ranks.metrics import ReportError
from jupyter_ddl.ranks.strategies.steps import parts_of
from jupyter_ddl.verbs.base import parse_line

_mse = torch.nn.functional.mse_loss


def _made(**settings: Any) -> tuple[Any, Any]:
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return model, jupyter_ddl.prepare_step(model, _mse, optimizer, **settings)


def _batch(n: int = 5) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(n, 3, generator=generator), torch.randn(n, 2, generator=generator)


def test_a_step_in_plain_execution_is_the_usual_loop() -> None:
    model, step = _made(clip_norm=0.1)
    torch.manual_seed(0)
    other = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1, momentum=0.9)
    for _ in range(3):
        x, y = _batch()
        optimizer.zero_grad()
        expected = _mse(other(x), y)
        expected.backward()
        torch.nn.utils.clip_grad_norm_(other.parameters(), 0.1)
        optimizer.step()
        found = step(x, y)
        assert (found.shape, found.requires_grad) == (torch.Size([]), False)
        assert found.item() == expected.item()
    assert torch.equal(model.weight, other.weight)


def test_a_batch_in_parts_trains_what_the_whole_one_does() -> None:
    (whole, step), (cut, in_parts) = _made(), _made(accumulate=3)
    for _ in range(3):
        assert step(*_batch()).item() == pytest.approx(in_parts(*_batch()).item(), rel=1e-6)
    torch.testing.assert_close(whole.weight, cut.weight)


def test_parts_that_no_sample_is_left_for_count_for_nothing() -> None:
    x = torch.arange(2)
    found = parts_of((x, {"y": x, "scale": 3}), 2, 3)
    assert [n for n, _ in found] == [1, 1, 0]
    assert [part[0].tolist() for _, part in found] == [[0], [1], [0]]
    assert found[1][1][1]["y"].tolist() == [1]


@pytest.mark.parametrize("amp", ["bf16", torch.bfloat16])
def test_mixed_precision_computes_in_the_type_that_is_asked_for(amp: Any) -> None:
    seen = []
    model = torch.nn.Linear(3, 2)

    def loss(output: Any, target: Any) -> Any:
        seen.append(output.dtype)
        return _mse(output.float(), target)

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    jupyter_ddl.prepare_step(model, loss, optimizer, amp=amp)(*_batch())
    assert (seen, model.weight.dtype) == ([torch.bfloat16], torch.float32)


def _linear() -> Any:
    return torch.nn.Linear(3, 2)


def _sgd(model: Any) -> Any:
    return torch.optim.SGD(model.parameters(), lr=0.1)


@pytest.mark.parametrize(
    ("arguments", "settings", "message"),
    [
        (lambda m: (_sgd(m), _mse, m), {}, r"model is SGD .* expected a torch\.nn\.Module"),
        (lambda m: (m, _sgd(m), _mse), {}, "loss_fn is SGD"),
        (lambda m: (m, _mse, m), {}, r"optimizer is Linear.*; expected a torch\.optim"),
        (lambda m: (m, _mse, torch.optim.LBFGS(m.parameters())), {}, "LBFGS, whose step"),
        (lambda m: (m.requires_grad_(False), _mse, _sgd(m)), {}, "nothing to train"),
        (lambda m: (m, _mse, _sgd(_linear())), {}, "SGD has none of the parameters of Linear"),
        (lambda m: (m, _mse, _sgd(m)), {"accumulate": 0}, "accumulate=0.: expected a whole"),
        (lambda m: (m, _mse, _sgd(m)), {"clip_norm": -1}, "clip_norm=-1.: expected a number"),
        (lambda m: (m, _mse, _sgd(m)), {"amp": "half"}, "amp='half'.: expected 'bf16'"),
    ],
)
def test_what_can_be_no_step_is_refused_in_one_line(
    arguments: Any, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ReportError, match=message) as refusal:
        jupyter_ddl.prepare_step(*arguments(_linear()), **settings)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("loss_fn", "message"),
    [
        (lambda o, y: _mse(o, y, reduction="none"), r"shape \(5, 2\); expected one number"),
        (lambda o, y: _mse(o, y).item(), r"returned \d.* \(float\); expected a tensor"),
        (lambda o, y: (o.argmax(1) == 0).float().mean(), "without gradients"),
    ],
)
def test_a_loss_that_can_not_be_trained_on_is_refused(loss_fn: Any, message: str) -> None:
    model = _linear()
    step = jupyter_ddl.prepare_step(model, loss_fn, _sgd(model))
    with pytest.raises(ReportError, match=message):
        step(*_batch())


def test_a_step_wants_a_batch() -> None:
    _, step = _made()
    with pytest.raises(ReportError, match=r"got 1 argument; expected .* step"):
        step(torch.ones(2, 3))
    with pytest.raises(ReportError, match=r"shape \(0, 3\); expected a batch"):
        step(torch.ones(0, 3), torch.ones(0, 2))


def _shared(rank: int, n_ranks: int, n: int = 13, **options: Any) -> PreparedLoader:
    loader = DataLoader(TensorDataset(torch.arange(n)), **{"batch_size": 5, **options})
    found: PreparedLoader = prepare_loader(loader, rank=rank, world_size=n_ranks, seed=3)
    found.share_batches()
    return found


def test_ranks_share_each_batch_and_no_sample_is_given_twice() -> None:
    given = [
        [(batch.tolist(), loader.share_at_hand) for (batch,) in loader]
        for loader in (_shared(rank, 4, shuffle=True) for rank in range(4))
    ]
    assert [sizes for _, sizes in given[0]] == [(2, 5), (2, 5), (1, 3)]
    assert given[3][2][1] == (0, 3)  # it keeps the others company
    own = [sample for each in given for batch, sizes in each for sample in batch[: sizes[0]]]
    assert sorted(own) == list(range(13))
    alone = [batch.tolist() for (batch,) in _shared(0, 1, shuffle=True)]
    assert sorted(alone[1]) == sorted(sample for each in given for sample in each[1][0])


def test_a_shared_loader_goes_on_where_another_number_of_ranks_was() -> None:
    loader = _shared(1, 2)
    for number, _ in enumerate(loader, 1):
        if number == 2:
            assert loader.sampler.progress == Progress(0, 10)
            break
    alone = _shared(0, 1)
    alone.sampler.progress = Progress(0, 10)
    assert [batch.tolist() for (batch,) in alone] == [[10, 11, 12]]
    assert len(_shared(0, 2, drop_last=True)) == 2


def test_batches_are_shared_out_behind_a_pass_with_persistent_workers_too() -> None:
    loader = DataLoader(
        TensorDataset(torch.arange(8)), batch_size=4, num_workers=1, persistent_workers=True
    )
    found = prepare_loader(loader, rank=1, world_size=2, seed=3)
    assert [len(batch) for (batch,) in found] == [4]
    found.share_batches()
    assert [batch.tolist() for (batch,) in found] == [[1, 3], [5, 7]]


def test_a_step_knows_of_several_loaders_the_one_that_has_given_its_batch() -> None:
    """Of a labelled and an unlabelled batch, of unequal sizes and epochs, say."""
    many, few = _shared(2, 3, n=10, batch_size=6), _shared(2, 3, n=5, batch_size=4)
    for number, ((x,), (u,)) in enumerate(zip(many, few, strict=True)):
        shares = [share_of(batch, [many, few]) for batch in ((x, x), (u, x), (u.view(-1, 1), u))]
        assert shares == ([(2, 6), (1, 4), (1, 4)] if number == 0 else [(1, 4), (0, 1), (0, 1)])
        # Of what the cell has computed, by the number of samples; a loader alone in any case.
        assert share_of((x + 1, x + 1), [few, many]) == (many if number == 0 else few).share_at_hand
        assert share_of((torch.ones(9), x + 1), [few]) == few.share_at_hand
    assert share_of((torch.ones(9),), [many, few]) is None


def test_a_loader_that_can_not_be_shared_out_is_refused() -> None:
    with pytest.raises(ReportError, match=r"batch_size=5 is the batch of all ranks .* 6 of them"):
        _shared(0, 6)
    loader = prepare_loader(
        DataLoader(TensorDataset(torch.arange(4))), rank=0, world_size=1, seed=3
    )
    for _ in loader:
        with pytest.raises(ReportError, match="within a loop over a prepared loader"):
            loader.share_batches()
        break


def test_an_option_goes_to_its_strategy_and_no_other() -> None:
    verb = parse_line("ddp -n 2 --compress bf16").verb
    assert verb.ranks.strategy_options == {"compress": "bf16"}
    assert "--compress bf16" in verb.group_text
    assert "strategy_options" not in str(_record("ddp -n 2"))
    with pytest.raises(OptionError, match="--compress belongs to --strategy ddp or --strategy ps"):
        parse_line("ddp -n 2 --strategy fsdp --compress bf16")
    with pytest.raises(OptionError, match="'zip' is not a choice"):
        type(verb).from_python({"n_ranks": 2, "compress": "zip"})


def _record(line: str) -> Any:
    return msgspec.to_builtins(parse_line(line).verb)
