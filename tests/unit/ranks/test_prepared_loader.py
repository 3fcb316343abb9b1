"""Prepared loaders: shares, epochs, places to go on from."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch
from torch.utils.data import (
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    TensorDataset,
    WeightedRandomSampler,
)

from jupyter_ddl.ranks.loader import PreparedLoader, Progress, prepare_loader
from jupyter_ddl.ranks.metrics import ReportError


def _loader(n: int = 20, **options: Any) -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.arange(n)), **{"batch_size": 2, **options})


def _prepared(rank: int = 0, world_size: int = 1, **options: Any) -> PreparedLoader:
    return prepare_loader(_loader(**options), rank=rank, world_size=world_size, seed=3)


def _samples(loader: Any) -> list[int]:
    return [int(sample) for (batch,) in loader for sample in batch]


def test_ranks_share_every_epoch_and_shuffle_it_anew() -> None:
    loaders = [_prepared(rank, 2, shuffle=True) for rank in range(2)]
    epochs = []
    for _ in range(3):
        shares = [_samples(loader) for loader in loaders]
        assert sorted(shares[0] + shares[1]) == list(range(20))
        epochs.append(shares[0])
    assert epochs[0] != epochs[1] != epochs[2]


def test_a_loader_that_does_not_shuffle_keeps_the_order_and_its_options() -> None:
    loader = _prepared(batch_size=3, drop_last=True, collate_fn=lambda rows: tuple(rows))
    assert [[int(row[0]) for row in batch] for batch in loader][:2] == [[0, 1, 2], [3, 4, 5]]
    assert len(loader) == 6
    assert loader.drop_last


def test_a_pass_goes_on_where_a_checkpoint_was_written_with_another_number_of_ranks() -> None:
    first = [_prepared(rank, 2, shuffle=True) for rank in range(2)]
    _ = [_samples(loader) for loader in first]
    seen: list[int] = []
    for loader in first:
        for number, (batch,) in enumerate(loader, 1):
            seen += batch.tolist()
            if number == 3:
                place = loader.sampler.progress
                break
    assert place == Progress(1, 12)
    alone = _prepared(shuffle=True)
    alone.sampler.progress = place
    assert len(alone) == 4
    assert sorted(seen + _samples(alone)) == list(range(20))
    assert alone.sampler.progress == Progress(2)


def test_looking_at_the_first_batch_does_not_begin_an_epoch() -> None:
    loader = _prepared(shuffle=True)
    loader.sampler.progress = Progress(4, 6)
    first = next(iter(loader))[0].tolist()
    assert loader.sampler.progress == Progress(4, 6)
    assert _samples(loader)[:2] == first


def test_leaving_a_pass_ends_its_epoch() -> None:
    loader = _prepared()
    for number, _ in enumerate(loader):
        if number == 2:
            break
    assert loader.sampler.progress == Progress(1)


def test_two_passes_at_once_are_both_whole() -> None:
    loader = _prepared()
    for _ in loader:
        assert sorted(_samples(loader)) == list(range(20))
        break


def test_a_checkpoint_at_the_last_batch_leaves_nothing_of_the_epoch() -> None:
    loader = _prepared()
    loader.sampler.progress = Progress(0, 20)
    assert _samples(loader) == []
    assert len(_samples(loader)) == 20


class _Noise(Dataset[Any]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        return (torch.rand(()),)


@pytest.mark.forks
def test_worker_processes_draw_other_numbers_on_every_rank_and_in_every_epoch() -> None:
    options: dict[str, Any] = {"batch_size": 2, "num_workers": 2}
    drawn = []
    for rank in range(2):
        loader = prepare_loader(DataLoader(_Noise(), **options), rank=rank, world_size=2, seed=3)
        for _ in range(2):
            drawn += [float(value) for (batch,) in loader for value in batch]
    assert len(set(drawn)) == len(drawn) == 16
    again = prepare_loader(DataLoader(_Noise(), **options), rank=0, world_size=2, seed=3)
    assert [float(value) for (batch,) in again for value in batch] == drawn[:4]


@pytest.mark.forks
def test_persistent_workers_shuffle_every_epoch_too() -> None:
    loader = _prepared(shuffle=True, num_workers=1, persistent_workers=True)
    passes = [_samples(loader) for _ in range(3)]
    assert all(sorted(each) == list(range(20)) for each in passes)
    assert passes[0] != passes[1] != passes[2]
    assert loader.sampler.progress == Progress(3)


def test_a_distributed_sampler_is_replaced_and_set_epoch_may_still_be_called() -> None:
    data = TensorDataset(torch.arange(20))
    sampler = DistributedSampler(data, num_replicas=2, rank=1, shuffle=True, seed=11)
    loader = DataLoader(data, batch_size=2, sampler=sampler)
    prepared = prepare_loader(loader, rank=1, world_size=2, seed=3)
    assert (prepared.sampler.seed, prepared.sampler.shuffle) == (11, True)
    prepared.sampler.progress = Progress(5, 8)
    prepared.sampler.set_epoch(5)
    assert prepared.sampler.progress == Progress(5, 8)
    prepared.sampler.set_epoch(6)
    assert prepared.sampler.progress == Progress(6, 0)


class _Endless(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(range(4))


@pytest.mark.parametrize(
    ("loader", "reason"),
    [
        (lambda: DataLoader(_Endless()), r"an iterable dataset \(_Endless\)"),
        (
            lambda: _loader(sampler=WeightedRandomSampler([1.0] * 20, 20)),
            r"a sampler of its own \(WeightedRandomSampler\)",
        ),
        (
            lambda: _loader(batch_size=1, batch_sampler=[[1, 2], [3]]),
            r"a batch sampler of its own \(list\)",
        ),
    ],
)
def test_what_cannot_be_shared_out_is_refused_in_a_group_and_left_alone_without(
    loader: Any, reason: str
) -> None:
    with pytest.raises(ReportError, match=reason):
        prepare_loader(loader(), rank=0, world_size=2, seed=3)
    given = loader()
    assert prepare_loader(given, rank=0, world_size=1, seed=3) is given


def test_preparing_twice_changes_nothing() -> None:
    loader = _prepared()
    assert prepare_loader(loader, rank=0, world_size=1, seed=3) is loader


class _Counted(Dataset[Any]):
    """Counts how often a sample is read."""

    def __init__(self) -> None:
        self.n_read = 0

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> Any:
        self.n_read += 1
        return torch.tensor(index)


@pytest.mark.parametrize("n_workers", [0, 2])
@pytest.mark.parametrize("shares", [False, True])
def test_batches_that_nobody_looks_at_are_counted_and_not_read(
    shares: bool, n_workers: int
) -> None:
    data = _Counted()

    def made() -> PreparedLoader:
        loader = DataLoader(data, batch_size=4, shuffle=True, num_workers=n_workers)
        prepared: PreparedLoader = prepare_loader(loader, rank=1, world_size=2, seed=3)
        if shares:
            prepared.share_batches()
        return prepared

    whole = made()
    expected = [[batch.tolist() for batch in whole] for _ in range(3)]
    n_batches = len(expected[0])
    loader, n_passed = made(), n_batches + 1
    loader.is_passed_over = lambda: n_passed > 0
    data.n_read, found = 0, []
    for _ in range(3):
        found.append([])
        for batch in loader:
            found[-1].append(batch.tolist())
            assert not shares or loader.share_at_hand == (2, 4)
            n_passed -= 1
            if n_passed == 0:
                assert data.n_read == 2 * len(batch)
    assert found[0] == [expected[0][0]] * n_batches
    # From the first that somebody looks at on they are those that the others have.
    assert found[1] == [expected[1][0], *expected[1][1:]]
    assert found[2] == expected[2]
    assert loader.sampler.progress == Progress(3)


def test_a_prepared_loader_can_be_pickled_wherever_it_stands() -> None:
    loader = _prepared()
    loader.is_passed_over = lambda: True
    assert _samples(pickle.loads(pickle.dumps(loader))) == list(range(20))
