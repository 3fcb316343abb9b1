"""Ranks that meet, go on without one that is lost, and take it back: each a thread, over gloo."""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
import torch.distributed as dist

from jupyter_ddl.protocol.group import MembersChanged, RankPlace
from jupyter_ddl.ranks.membership import Membership
from jupyter_ddl.ranks.strategies import company
from jupyter_ddl.ranks.strategies.company import Company
from jupyter_ddl.ranks.strategies.exchange import Exchange
from jupyter_ddl.ranks.strategies.local_sgd import circle as circles
from jupyter_ddl.ranks.strategies.local_sgd.circle import Circle
from jupyter_ddl.ranks.strategies.local_sgd.strategy import DiLoCo
from jupyter_ddl.ranks.strategies.steps import StepRequest, StepSettings
from jupyter_ddl.testing.process_groups import end_process_group
from tests.until import PATIENCE_S, until

_CPU = torch.device("cpu")
_EVERY = 4
_N_STEPS = 40
_JOIN_S = PATIENCE_S


class _Killed(BaseException):
    pass


class _Dismissed(BaseException):
    """The others are through before it was let in."""


@pytest.fixture(autouse=True)
def open_listeners(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ranks have processes of their own: here one would close what others listen at."""
    monkeypatch.setattr(company, "closed_to_strangers", contextlib.nullcontext)
    # As in a rank: torch tells of failures otherwise.
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    end_process_group()


class Group:
    """Three ranks, and a driver that tells them who is there and starts who was lost."""

    def __init__(self, folder: Path, n_ranks: int = 3) -> None:
        self.path = str(Path(tempfile.mkdtemp(dir=folder)) / "store")
        self.n_ranks = n_ranks
        self.lives = dict.fromkeys(range(n_ranks), 1)
        self.members: dict[int, Membership] = {}
        self.late_members: dict[int, Membership] = {}
        """In place of the usual ones."""
        self.found: dict[int, Any] = {}
        self.errors: list[BaseException] = []
        self.real_steps: dict[tuple[int, int], list[int]] = {}
        self.circle: Any = None
        """Rank 0's."""
        self._n_told = 0
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []

    def start(self, rank: int, die: Callable[[int, int, str], bool]) -> None:
        with self._lock:
            self.members[rank] = self.late_members.pop(rank, Membership())
        thread = threading.Thread(target=self._run, args=(rank, die), daemon=True)
        self._threads.append(thread)
        thread.start()

    def tell(self) -> None:
        with self._lock:
            self._n_told += 1
            for members in self.members.values():
                members.take(MembersChanged("r", 0, 1, self._n_told, dict(self.lives)))

    def end(self) -> None:
        for each in self._threads:
            each.join(_JOIN_S)
            assert not each.is_alive(), "stuck"
        assert self.errors == []

    def _run(self, rank: int, die: Callable[[int, int, str], bool]) -> None:
        life = self.lives[rank]
        try:
            self.found[rank] = self._train(rank, life, die)
        except _Dismissed:
            pass
        except _Killed:
            life = self.lives.pop(rank)
            self.tell()
            self.lives[rank] = life + 1
            self.start(rank, lambda *_: False)
            self.tell()
        except BaseException as error:  # noqa: BLE001 - told by the test
            self.errors.append(error)

    def _train(self, rank: int, life: int, die: Callable[[int, int, str], bool]) -> Any:
        place = RankPlace("g", rank, self.n_ranks, strategy="diloco", life=life, timeout_s=_JOIN_S)
        strategy = DiLoCo(sync_every=_EVERY)
        strategy.company = Company(place, dist.FileStore(self.path, -1), self.members[rank])
        # A seed of its own: what all begin with is rank 0's.
        generator = torch.Generator().manual_seed(10 * rank + life)
        model = torch.nn.Linear(2, 1).double()
        with torch.no_grad():
            model.weight.copy_(torch.randn(1, 2, generator=generator))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        step = strategy.make_step(
            StepRequest(model, torch.nn.functional.mse_loss, optimizer, StepSettings(), _CPU)
        )
        circle: Any = strategy.circle
        if rank == 0:
            self.circle = circle
        try:
            _make_mortal(circle, lambda where: die(rank, strategy.n_steps, where), life == 1)
            if life > 1:
                self._let_dismiss(circle)
            made = self.real_steps.setdefault((rank, life), [])
            for number in range(_N_STEPS):
                if die(rank, number, "step"):
                    raise _Killed
                x = torch.full((3, 2), float(rank + 1), dtype=torch.float64)
                step(x, torch.ones(3, 1, dtype=torch.float64))
                if not strategy.passes:
                    made.append(number)
            strategy.unwrap(model)
            strategy.leave("complete")
            if strategy.passes:
                raise _Dismissed
            return [each.detach().clone() for each in model.parameters()]
        except _Killed:
            circle._exchange.use(None)
            circle._group = None
            raise

    def _let_dismiss(self, circle: Circle) -> None:
        poll = circle._poll

        def patient(is_so: Callable[[], bool], whom: str) -> None:
            def is_so_or_over() -> bool:
                if is_so():
                    return True
                if 0 in self.found:
                    raise _Dismissed
                return False

            poll(is_so_or_over, whom)

        circle._poll = patient  # type: ignore[method-assign]


def _make_mortal(circle: Circle, dies: Callable[[str], bool], breaks: bool) -> None:
    """The rank may die between having its means and telling so, or break off when it has."""
    largest = circle._largest

    def confirm(number: float) -> float:
        if dies("confirm"):
            raise _Killed
        found = largest(number)
        if dies("confirmed"):
            raise _Killed
        if breaks and dies("unsure"):
            raise RuntimeError("Connection closed by peer")
        return found

    circle._largest = confirm  # type: ignore[method-assign]


def _play(group: Group, die: Callable[[int, int, str], bool]) -> None:
    for rank in range(group.n_ranks):
        group.start(rank, die)
    group.end()


def _once(rank: int, number: int, where: str) -> Callable[[int, int, str], bool]:
    done: list[int] = []

    def die(at_rank: int, at: int, at_place: str) -> bool:
        if done or (at_rank, at_place) != (rank, where) or at < number:
            return False
        done.append(at)
        return True

    return die


def _one_that_is_back_in_time(group: Group, where: str) -> Callable[[int, int, str], bool]:
    """The last rank dies behind step 10; behind step 25 the first one waits until it is back."""
    dies = _once(2, 10, where)

    def die(rank: int, at: int, place: str) -> bool:
        if (rank, at, place) == (0, 25, "step"):
            circle = group.circle
            until(
                lambda: not circle.lacks_ranks or circle._guests(), _JOIN_S, "it asks to be let in"
            )
        return dies(rank, at, place)

    return die


@pytest.mark.parametrize("where", ["step", "confirm"])
def test_the_others_make_every_step_and_take_the_lost_rank_back(tmp_path: Path, where: str) -> None:
    group = Group(tmp_path)
    _play(group, _one_that_is_back_in_time(group, where))
    for rank in (0, 1):
        assert group.real_steps[rank, 1] == list(range(_N_STEPS))
    back = group.real_steps[2, 2]
    # From behind a meeting to the end, at the places of the others.
    assert back == list(range(back[0], _N_STEPS))
    assert back[0] % _EVERY == 0
    assert back[0] > 10
    for mine, other in zip(group.found[0], group.found[2], strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=0)


class _Late(Membership):
    """Hears that a rank is back only while it waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._waits = False
        self._held: list[MembersChanged] = []

    def take(self, message: MembersChanged) -> None:
        with self._lock:
            if not self._waits and max(message.lives.values()) > 1:
                self._held.append(message)
                return
        super().take(message)

    def wait_beyond(self, number: int, timeout_s: float) -> bool:
        with self._lock:
            self._waits = True
        for each in self._held:
            super().take(each)
        is_told = super().wait_beyond(number, timeout_s)
        self._waits = False
        return is_told


def test_a_rank_that_hears_late_who_is_back_does_not_take_it_for_lost(tmp_path: Path) -> None:
    group = Group(tmp_path)
    group.late_members[1] = _Late()
    _play(group, _one_that_is_back_in_time(group, "step"))
    for rank in (0, 1):
        assert group.real_steps[rank, 1] == list(range(_N_STEPS))
    assert group.real_steps[2, 2]


@pytest.mark.parametrize("unsure", [0, 1])
@pytest.mark.parametrize("number", [9, _N_STEPS - 1], ids=["in between", "at the end"])
def test_who_cannot_know_whether_a_meeting_was_complete_goes_on_with_the_others(
    tmp_path: Path, unsure: int, number: int
) -> None:
    """One has heard of the end of a meeting, another one has not, and a third one is dead."""
    dies, breaks = _once(2, number, "confirmed"), _once(unsure, number, "unsure")
    group = Group(tmp_path)
    _play(group, lambda *what: dies(*what) or breaks(*what))
    for rank in (0, 1):
        assert group.real_steps[rank, 1] == list(range(_N_STEPS))
    for mine, other in zip(group.found[0], group.found[1], strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=0)


def test_nobody_gets_stuck_and_all_end_with_the_same_whenever_ranks_are_lost(
    tmp_path: Path,
) -> None:
    for seed in range(12):
        rng = Random(seed)
        dies = {
            rank: _once(rank, rng.randrange(_N_STEPS), rng.choice(["step", "confirm"]))
            for rank in (1, 2)
            if rng.random() < 0.8
        }

        def die(rank: int, at: int, where: str, dies: Any = dies) -> bool:
            return rank in dies and dies[rank](rank, at, where)

        with _names(seed):
            group = Group(tmp_path)
            _play(group, die)
            assert group.real_steps[0, 1] == list(range(_N_STEPS))
            for found in group.found.values():
                for mine, other in zip(group.found[0], found, strict=True):
                    torch.testing.assert_close(mine, other, rtol=0, atol=0)


@contextlib.contextmanager
def _names(seed: int) -> Iterator[None]:
    try:
        yield
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}") from error


class _ToldWhileLooking(Membership):
    """The driver's word comes just behind the first look at who is there."""

    def lives(self, world_size: int) -> dict[int, int]:
        before = super().lives(world_size)
        self.take(MembersChanged("r", 0, 1, 1, {0: 1, 1: 1}))
        return before


def test_a_word_that_comes_while_one_looks_is_heard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(circles, "_WORD_S", 0.0)
    place = RankPlace("g", 0, 3, strategy="diloco")
    store = dist.FileStore(str(tmp_path / "store"), -1)
    first = Circle(Company(place, store, _ToldWhileLooking()), Exchange())
    first._await_word(RuntimeError("Connection closed by peer"), dict.fromkeys(range(3), 1))
