"""What a framework logs becomes reports; what fails beside a training ends nothing."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch

from jupyter_ddl.ranks.frameworks import loops
from jupyter_ddl.ranks.frameworks.loops import Loop, set_loop, telling
from jupyter_ddl.ranks.stopping import TrialStopped


class Attempt:
    """Keeps what it is told."""

    def __init__(self, rank: int = 0, world_size: int = 1) -> None:
        self.rank, self.world_size = rank, world_size
        self.speaks_for_itself = False
        self.side_folder = ""
        self.objective: str | None = None
        self.told: list[tuple[int, dict[str, float]]] = []
        self.saved: list[tuple[int | None, dict[str, Any]]] = []
        self.state: dict[str, Any] | None = None

    def record(self, step: int, metrics: Mapping[str, float]) -> None:
        self.told.append((step, dict(metrics)))

    def checkpoint(self, step: int | None, state: Mapping[str, Any]) -> None:
        self.saved.append((step, dict(state)))

    def resume(self) -> dict[str, Any] | None:
        return self.state


@pytest.fixture
def attempt() -> Attempt:
    return Attempt()


@pytest.fixture
def notices() -> Iterator[list[str]]:
    yield []
    set_loop(None)


def test_parts_of_a_step_are_one_step(attempt: Attempt, notices: list[str]) -> None:
    loop = Loop(attempt, notices.append)
    loop.report({"loss": 0.5, "epoch": 1.0}, 10)
    loop.report({"eval_loss": 0.4, "epoch": 1.0}, 10)
    loop.report({"epoch": 1.0}, 10)
    assert attempt.told == [(10, {"loss": 0.5, "epoch": 1.0}), (10, {"eval_loss": 0.4})]


def test_a_second_training_goes_on_behind_the_first(attempt: Attempt, notices: list[str]) -> None:
    loop = Loop(attempt, notices.append)
    for _ in range(2):
        for step in (0, 10, 20):
            loop.report({"loss": float(step)}, step)
    assert [step for step, _ in attempt.told] == [0, 10, 20, 21, 31, 41]


def test_what_is_logged_again_at_a_step_is_whole(attempt: Attempt, notices: list[str]) -> None:
    loop = Loop(attempt, notices.append)
    loop.report({"eval_loss": 0.4, "eval_runtime": 1.0}, 10)
    loop.report({"eval_loss": 0.4, "eval_runtime": 2.0}, 10)
    assert attempt.told[1] == (11, {"eval_loss": 0.4, "eval_runtime": 2.0})


def test_without_steps_they_are_counted_and_texts_are_left_out(
    attempt: Attempt, notices: list[str]
) -> None:
    loop = Loop(attempt, notices.append)
    loop.report({"loss": torch.tensor(0.25), "note": "warm"})
    loop.report({"note": "cold"})
    loop.report({"loss": 1})
    assert attempt.told == [(0, {"loss": 0.25}), (1, {"loss": 1.0})]


def test_a_cell_that_reports_speaks_for_itself(attempt: Attempt, notices: list[str]) -> None:
    Loop(attempt, notices.append, own_calls=("report",)).report({"loss": 1.0}, 1)
    attempt.speaks_for_itself = True
    Loop(attempt, notices.append).report({"loss": 1.0}, 1)
    assert attempt.told == []


@pytest.mark.parametrize("own", ["checkpoint", "resume"])
def test_a_cell_that_saves_keeps_its_own_checkpoints(
    attempt: Attempt, notices: list[str], own: str
) -> None:
    attempt.state = {"framework": "keras"}
    loop = Loop(attempt, notices.append, own_calls=(own,))
    loop.save("keras", 1, {"epoch": 1})
    assert (attempt.saved, loop.resumed("keras")) == ([], None)


def test_a_saved_state_goes_to_the_first_loop_of_its_framework(
    attempt: Attempt, notices: list[str]
) -> None:
    loop = Loop(attempt, notices.append)
    loop.save("keras", 3, {"epoch": 3})
    assert attempt.saved == [(3, {"framework": "keras", "epoch": 3})]
    attempt.state = attempt.saved[0][1]
    assert loop.resumed("xgboost") is None
    assert loop.resumed("keras") == attempt.state
    assert loop.resumed("keras") is None


def test_a_failing_callback_is_one_notice(attempt: Attempt, notices: list[str]) -> None:
    set_loop(Loop(attempt, notices.append))

    def fail(_: Loop) -> None:
        raise RuntimeError("no such hook")

    for _ in range(3):
        telling("lightning", fail)
    assert len(notices) == 1
    assert "lightning: reporting by itself failed: RuntimeError: no such hook" in notices[0]


def test_a_stop_passes_through(attempt: Attempt, notices: list[str]) -> None:
    set_loop(Loop(attempt, notices.append))

    def stop(_: Loop) -> None:
        raise TrialStopped("pruned")

    with pytest.raises(TrialStopped):
        telling("keras", stop)


def test_other_threads_are_not_heard(attempt: Attempt, notices: list[str]) -> None:
    set_loop(Loop(attempt, notices.append))
    heard: list[Loop] = []
    thread = threading.Thread(target=telling, args=("xgboost", heard.append))
    thread.start()
    thread.join()
    assert heard == []
    telling("xgboost", heard.append)
    assert len(heard) == 1


def test_a_framework_that_takes_a_rank_for_all_is_told(notices: list[str]) -> None:
    for rank in range(2):
        loop = Loop(Attempt(rank, 2), notices.append)
        loop.spans("Lightning", 2, "needs devices={n}")
        loop.spans("Lightning", 1, "needs devices={n}")
    assert notices == ["2 ranks train separately: Lightning needs devices=2"]


class Store(dict[str, bytes]):
    """As much of torch's store as a comparison needs."""

    def set(self, key: str, value: str) -> None:
        self[key] = value.encode()

    def add(self, key: str, n: int) -> int:
        self[key] = str(int(self.get(key, b"0")) + n).encode()
        return int(self[key])

    def multi_get(self, keys: list[str]) -> list[bytes]:
        return [self[key] for key in keys]


@pytest.mark.parametrize(
    ("seeds", "factors", "n_notices"),
    [
        ((0, 0), (1.0, 1.0), 0),
        ((0, 1), (1.0, 1.0), 1),
        ((0, 0), (1.0, math.nan), 1),
        ((0, 0), (math.nan, math.nan), 0),
    ],
)
def test_ranks_whose_parameters_differ_are_told_once(
    notices: list[str], seeds: tuple[int, int], factors: tuple[float, float], n_notices: int
) -> None:
    store = Store()
    for rank, (seed, factor) in enumerate(zip(seeds, factors, strict=True)):
        torch.manual_seed(seed)
        model = torch.nn.Linear(4, 4)
        model.weight.data.mul_(factor)
        loop = Loop(Attempt(rank, 2), notices.append, store)
        for _ in range(2):
            loop.compare("Keras", model)
    assert len(notices) == n_notices
    assert all("after the first epoch of Keras" in notice for notice in notices)


def test_the_digest_is_bounded() -> None:
    wide = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(40)))
    assert len(loops.digest(wide)) <= 16
    assert loops.digest(torch.nn.ReLU()) == []
