"""How much of its time a cell waits for torch's DataLoader."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from jupyter_ddl.protocol.rank_messages import LoaderWait
from jupyter_ddl.ranks.heartbeat import LoaderWatch

torch = pytest.importorskip("torch")
data = torch.utils.data


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Slow:
    """A data set whose every sample takes ``step_s`` of the test's clock."""

    def __init__(self, clock: Clock, step_s: float) -> None:
        self._clock = clock
        self._step_s = step_s

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> float:
        if index >= 8:
            raise IndexError
        self._clock.now_s += self._step_s
        return float(index)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def told() -> list[LoaderWait]:
    return []


@pytest.fixture
def watch(clock: Clock, told: list[LoaderWait]) -> Iterator[LoaderWatch]:
    iterator: Any = torch.utils.data.dataloader._BaseDataLoaderIter
    original = iterator.__next__
    watch = LoaderWatch(told.append, clock)
    watch.hook()
    yield watch
    iterator.__next__ = original


def shares(told: list[LoaderWait]) -> list[float]:
    return [message.share for message in told]


def test_the_share_is_the_time_in_the_loader_out_of_all_time(
    watch: LoaderWatch, clock: Clock, told: list[LoaderWait]
) -> None:
    for _ in data.DataLoader(Slow(clock, 0.3), batch_size=1):
        clock.now_s += 0.1  # a training step
    watch.tell()
    assert shares(told) == [pytest.approx(0.75, abs=0.001)]


def test_a_loader_that_is_stuck_shows_before_it_returns(
    watch: LoaderWatch, clock: Clock, told: list[LoaderWait]
) -> None:
    class Stuck(Slow):
        def __getitem__(self, index: int) -> float:
            found = super().__getitem__(index)
            if index < 3:
                watch.tell()  # another thread does, while this one waits
            return found

    for _ in data.DataLoader(Stuck(clock, 1.0), batch_size=4):
        pass
    assert shares(told) == [1.0]


def test_what_has_hardly_changed_is_not_told_and_the_end_of_waiting_is(
    watch: LoaderWatch, clock: Clock, told: list[LoaderWait]
) -> None:
    for _ in range(3):
        for _ in data.DataLoader(Slow(clock, 0.1), batch_size=1):
            clock.now_s += 0.1
        watch.tell()
    clock.now_s += 10.0
    watch.tell()
    assert shares(told) == [0.5, 0.0]


def test_a_cell_without_a_loader_says_nothing(
    watch: LoaderWatch, clock: Clock, told: list[LoaderWait]
) -> None:
    clock.now_s += 5.0
    watch.tell()
    assert told == []


def test_what_another_thread_waits_for_is_no_loss(
    watch: LoaderWatch, clock: Clock, told: list[LoaderWait]
) -> None:
    loader = data.DataLoader(Slow(clock, 1.0), batch_size=8)
    thread = threading.Thread(target=lambda: list(loader))
    thread.start()
    thread.join()
    watch.tell()
    assert told == []


def test_samples_and_errors_pass_through_unchanged(watch: LoaderWatch, clock: Clock) -> None:
    class Broken(Slow):
        def __getitem__(self, index: int) -> float:
            if index == 2:
                raise RuntimeError("sample 2 is broken")
            return super().__getitem__(index)

    batches = iter(data.DataLoader(Broken(clock, 0.0), batch_size=1))
    assert [float(next(batches)), float(next(batches))] == [0.0, 1.0]
    with pytest.raises(RuntimeError, match="sample 2 is broken"):
        next(batches)
    assert [float(batch) for batch in data.DataLoader(Slow(clock, 0.0), batch_size=1)] == [
        float(number) for number in range(8)
    ]
