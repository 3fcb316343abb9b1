"""What a rank counts as a step, as waiting for data, and as neither."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from jupyter_ddl.protocol.events import StepsTimed
from jupyter_ddl.ranks import step_times
from jupyter_ddl.ranks.collective_waits import CollectiveWaits
from jupyter_ddl.ranks.heartbeat import LoaderWatch
from jupyter_ddl.ranks.peak_memory import peak_memory_bytes
from jupyter_ddl.ranks.step_times import StepTimes, watch_strategy

torch = pytest.importorskip("torch")
data = torch.utils.data


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Rank:
    """A training on a clock of its own; the real loader, the real optimizer."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.sent: list[StepsTimed] = []
        self.loader = LoaderWatch(lambda _: None, self.clock)
        self.loader.hook()
        self.steps = StepTimes(0, 1, 3, self.loader, self.sent.append, self.clock)
        self.weights = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
        self.optimizer = torch.optim.SGD([self.weights], lr=0.0)

    def batches(self, n_samples: int, loading_s: float, **options: Any) -> Any:
        clock = self.clock

        class Samples(data.Dataset):  # type: ignore[misc, name-defined]
            def __len__(self) -> int:
                return n_samples

            def __getitem__(self, index: int) -> float:
                clock.now_s += loading_s
                return float(index)

        return data.DataLoader(Samples(), **options)

    def compute_nothing(self, seconds: float) -> None:
        self.clock.now_s += seconds

    def compute(self, seconds: float) -> None:
        self.clock.now_s += seconds
        self.optimizer.zero_grad()
        (self.weights * torch.tensor([3.0, 4.0])).sum().backward()
        self.steps.step(self.optimizer)


@pytest.fixture
def rank() -> Iterator[Rank]:
    iterator: Any = data.dataloader._BaseDataLoaderIter
    original = iterator.__next__
    yield Rank()
    iterator.__next__ = original


def test_data_is_the_time_in_the_loader_and_the_last_batch_counts_what_it_has(rank: Rank) -> None:
    for _ in rank.batches(10, 0.25, batch_size=4):
        rank.compute(0.5)
    rank.steps.close()
    last = rank.sent[-1]
    assert (last.trial, last.attempt, last.rank) == (0, 1, 3)
    # Steps 2 and 3 of three: of 4 and of 2 samples.
    assert (last.n_steps, last.n_samples, last.n_workers) == (2, 6, 0)
    assert last.data_s == pytest.approx(1.5)
    assert last.step_s == pytest.approx(2.5)
    assert last.exchange_s is None
    assert last.gradient_norm == 5.0


def test_what_validates_or_saves_between_two_steps_is_no_step(rank: Rank) -> None:
    rank.compute(1.0)
    rank.compute(1.0)
    with torch.no_grad():
        for _ in rank.batches(4, 10.0, batch_size=2):
            pass
    rank.compute(1.0)
    rank.compute(1.0)
    rank.loader.n_asides += 1  # as a checkpoint does
    rank.clock.now_s += 50.0
    rank.compute(1.0)
    rank.steps.close()
    last = rank.sent[-1]
    assert (last.n_steps, last.step_s, last.data_s, last.n_samples) == (2, 2.0, 0.0, 0)


def test_a_long_training_tells_ever_more_rarely_and_its_end_at_once(rank: Rank) -> None:
    for _ in range(36_000):
        rank.compute(0.1)
    n_told = len(rank.sent)
    assert 100 < n_told < 200
    assert [each.n_steps for each in rank.sent] == sorted({each.n_steps for each in rank.sent})
    rank.compute(0.1)
    rank.steps.close()
    assert len(rank.sent) == n_told + 1
    assert rank.sent[-1].n_steps == 36_000
    rank.steps.close()
    assert len(rank.sent) == n_told + 1


def test_one_step_or_none_tells_nothing(rank: Rank) -> None:
    rank.steps.close()
    rank.compute(1.0)
    rank.steps.close()
    assert rank.sent == []


def test_the_norm_of_gradients_is_looked_at_no_oftener_than_a_thousandth_of_the_time(
    rank: Rank, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []
    norm = torch._foreach_norm

    def costly(tensors: Any) -> Any:
        looks.append(rank.clock.now_s)
        rank.clock.now_s += 0.1
        return norm(tensors)

    monkeypatch.setattr(torch, "_foreach_norm", costly)
    for _ in range(1000):
        rank.compute(1.0)
    assert 5 <= len(looks) <= 10
    assert all(b - a >= 100.0 for a, b in itertools.pairwise(looks))


@pytest.mark.parametrize(
    ("batch", "n_samples"),
    [
        (torch.ones(5, 2), 5),
        ([torch.ones(3), torch.ones(9)], 3),
        ({"x": (torch.ones(4, 1),)}, 4),
        (torch.tensor(1.0), 1),
        ([], 0),
        ("text", 0),
        (None, 0),
        ([[[[[[torch.ones(2)]]]]]], 0),
        (type("Odd", (), {"shape": property(lambda _: 1 / 0)})(), 0),
        (type("Odd", (), {"shape": ("many",)})(), 0),
    ],
)
def test_a_batch_of_any_kind_hurts_nobody(rank: Rank, batch: Any, n_samples: int) -> None:
    loader = data.DataLoader([batch], batch_size=None)
    assert len(list(loader)) == 1
    assert rank.loader.n_samples == n_samples


def test_a_thread_of_the_cell_that_reads_another_loader_adds_nothing(rank: Rank) -> None:
    loader = rank.batches(8, 1.0, batch_size=4)
    thread = threading.Thread(target=lambda: list(loader))
    thread.start()
    thread.join()
    assert (rank.loader.n_samples, rank.loader.waited_s) == (0, 0.0)


def test_the_bytes_of_all_gradients_are_counted_once(rank: Rank) -> None:
    more = torch.optim.SGD([rank.weights, torch.nn.Parameter(torch.zeros(10))], lr=0.0)
    for _ in range(3):
        rank.compute(1.0)
        rank.steps.step(more)
    rank.steps.close()
    assert rank.sent[-1].gradient_bytes == (2 + 10) * 4
    assert rank.sent[-1].n_cpus >= 1


def test_a_lazy_layer_that_is_never_called_ends_no_training(rank: Rank) -> None:
    unused = torch.nn.LazyLinear(3)
    rank.optimizer = torch.optim.SGD([rank.weights, *unused.parameters()], lr=0.0)
    for _ in range(3):
        rank.compute(1.0)
        rank.optimizer.step()
    rank.steps.close()
    assert rank.sent[-1].gradient_bytes == 2 * 4


class Waiting:
    """Collectives of a second each, on the rank's own clock."""

    def __init__(self, rank: Rank) -> None:
        self.waits = CollectiveWaits(rank.clock)
        self.wait = self.waits.timed(lambda _: rank.compute_nothing(1.0), torch)
        rank.steps = StepTimes(0, 1, 3, rank.loader, rank.sent.append, rank.clock, waits=self.waits)


def test_collectives_between_steps_are_exchange_and_those_of_a_validation_are_not(
    rank: Rank,
) -> None:
    waiting = Waiting(rank)
    waiting.wait(None)
    rank.compute(1.0)
    for _ in range(3):
        waiting.wait(None)
        waiting.wait(None)
        rank.compute(1.0)
    rank.loader.step_aside()
    waiting.wait(None)
    rank.compute(1.0)
    rank.steps.close()
    last = rank.sent[-1]
    assert (last.n_steps, last.step_s, last.exchange_s) == (3, 9.0, 6.0)
    waiting.waits.misses_some = True  # as where layers are cut: a part would look like the whole
    rank.compute(1.0)
    rank.steps.close()
    assert (rank.sent[-1].n_steps, rank.sent[-1].exchange_s) == (4, None)


def test_what_another_thread_or_a_measured_backward_pass_waits_for_is_not_counted(
    rank: Rank,
) -> None:
    waiting = Waiting(rank)
    thread = threading.Thread(target=waiting.wait, args=(None,))
    thread.start()
    thread.join()
    assert waiting.waits.n_waits == 0

    def backward() -> int:
        weights = torch.ones(2, requires_grad=True)
        weights.register_hook(lambda _: waiting.wait(None))
        weights.sum().backward()
        return waiting.waits.n_waits

    assert backward() == 1  # as FSDP does
    waiting.waits.has_own_measure = lambda: True  # as DDP has
    assert backward() == 1


def test_what_is_hidden_behind_the_backward_pass_is_told_as_a_share(
    rank: Rank, monkeypatch: Any
) -> None:
    class Measured:
        """A model in DDP: nanoseconds of its newest measured iteration."""

        told: dict[str, int] = {}

        def _get_ddp_logging_data(self) -> dict[str, int]:
            return self.told

    model = Measured()
    monkeypatch.setattr(step_times, "_models", [model])
    rank.compute(1.0)
    # Gradients that are ready before the first one travels are hidden by less than nothing.
    measured_ms = [(300, 200), (100, -50)]
    for number, (lasted_ms, hidden_ms) in enumerate(measured_ms, 3):
        model.told = {
            "iteration": number,
            "backward_comm_time": lasted_ms * 10**6,
            "backward_compute_comm_overlap_time": hidden_ms * 10**6,
        }
        rank.compute(1.0)
    rank.steps.close()
    assert rank.sent[-1].hidden_share == pytest.approx(0.5)
    assert rank.sent[-1].exchange_s == pytest.approx(2 * 0.1)


def test_what_a_strategy_has_sent_is_told_with_the_last_step_too(rank: Rank) -> None:
    class Sending:
        bytes_sent = 0

    strategy = Sending()
    watch_strategy(strategy)
    for number in range(1, 4):
        strategy.bytes_sent = 100 * number
        rank.compute(0.5)
    rank.steps.close()
    assert (rank.sent[-1].bytes_sent, rank.sent[-1].n_updates) == (300, 3)
    strategy.bytes_sent = 350  # of a checkpoint, behind the last step
    rank.steps.close()
    assert rank.sent[-1].bytes_sent == 350
    n_told = len(rank.sent)
    rank.steps.close()
    assert len(rank.sent) == n_told


def test_a_rank_tells_the_most_memory_that_it_has_held(rank: Rank) -> None:
    rank.compute(0.5)
    rank.compute(0.5)
    rank.steps.close()
    before = rank.sent[-1].peak_memory_bytes
    held = bytearray(peak_memory_bytes() + (64 << 20))
    held[::4096] = b"1" * len(held[::4096])
    del held
    rank.compute(0.5)
    rank.steps.close()
    after = rank.sent[-1].peak_memory_bytes
    assert before is not None
    assert after is not None
    assert after >= before + (64 << 20)


def test_of_one_of_many_trials_steps_are_told_as_seldom_as_they_double(rank: Rank) -> None:
    rank.steps = StepTimes(0, 1, 0, rank.loader, rank.sent.append, rank.clock, is_alone=True)
    for _ in range(1 + 40):
        rank.compute(0.5)
    assert [each.step_s for each in rank.sent] == pytest.approx([1.0, 2.0, 4.0, 8.0, 16.0])
    rank.steps.close()
    assert rank.sent[-1].step_s == pytest.approx(20.0)


def test_of_a_training_that_is_over_at_once_and_one_of_many_nothing_is_told(rank: Rank) -> None:
    rank.steps = StepTimes(0, 1, 0, rank.loader, rank.sent.append, rank.clock, is_alone=True)
    for _ in range(9):
        rank.compute(0.1)
    rank.steps.close()
    assert rank.sent == []
