"""Who is pushed which snapshot of a run, and when; in virtual time."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable

import msgspec
import pytest

from jupyter_ddl.controller.server import N_SOON, PUSH_INTERVAL_S, SOON_S, Fanout
from jupyter_ddl.protocol.replies import SnapshotPush, Upward
from jupyter_ddl.protocol.snapshot import EncodedSnapshot


class Timer:
    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self.callback = None


class Timers:
    """A loop's clock that only moves when it is told to."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._numbers = itertools.count()
        self._heap: list[tuple[float, int, Timer]] = []

    def time(self) -> float:
        return self.now_s

    def call_later(self, delay: float, callback: Callable[[], object], /) -> Timer:
        timer = Timer(callback)
        heapq.heappush(self._heap, (self.now_s + delay, next(self._numbers), timer))
        return timer

    @property
    def n_set(self) -> int:
        return sum(timer.callback is not None for _, _, timer in self._heap)

    def run(self, seconds: float) -> None:
        end_s = self.now_s + seconds
        while self._heap and self._heap[0][0] <= end_s:
            self.now_s, _, timer = heapq.heappop(self._heap)
            if timer.callback is not None:
                timer.callback()
        self.now_s = end_s


class Tab:
    """A watcher that notes what it is given, and when."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self.frames: list[bytes] = []
        self.seen: list[tuple[float, int]] = []

    def push(self, run_id: str, frame: bytes) -> None:
        assert run_id == "r1"
        self.frames.append(frame)
        message = msgspec.msgpack.decode(frame[4:], type=Upward)
        assert isinstance(message, SnapshotPush)
        self.take(message.snapshot)

    def take(self, snapshot: EncodedSnapshot) -> None:
        self.seen.append((self._timers.now_s, snapshot.seq))

    def seqs(self) -> list[int]:
        return [seq for _, seq in self.seen]


class Run:
    """A run whose snapshot is its number of events, and the fan-out of it."""

    def __init__(self) -> None:
        self.timers = Timers()
        self.seq = 0
        self.drawn: list[int] = []
        self.fanout = Fanout(lambda: self.seq, self._draw, self.timers)

    def _draw(self) -> EncodedSnapshot:
        self.drawn.append(self.seq)
        return EncodedSnapshot("r1", self.seq, "running", b'{"seq":%d}' % self.seq)

    def join(self) -> Tab:
        tab = Tab(self.timers)
        tab.take(self.fanout.join(tab))
        return tab

    def commit(self, n_events: int = 1, *, is_last: bool = False) -> None:
        self.seq += n_events
        self.fanout.changed(is_last=is_last)


@pytest.fixture
def run() -> Run:
    return Run()


def test_who_joins_sees_the_run_as_it_is(run: Run) -> None:
    run.seq = 7
    assert run.join().seqs() == [7]


def test_the_first_change_is_pushed_at_once_and_those_close_behind_it_together(run: Run) -> None:
    tab = run.join()
    run.timers.run(10)
    for _ in range(5):
        run.commit()
        run.timers.run(0.01)
    run.timers.run(1)
    assert [seq for _, seq in tab.seen] == [0, 1, 5]
    assert [at_s for at_s, _ in tab.seen] == pytest.approx([0, 10, 10 + SOON_S])


def test_a_run_that_never_rests_is_pushed_four_times_a_second(run: Run) -> None:
    tab = run.join()
    for _ in range(10_000):
        run.commit()
        run.timers.run(0.001)
    assert 40 + N_SOON <= len(tab.seen) <= 41 + N_SOON
    gaps = [late - early for (early, _), (late, _) in itertools.pairwise(tab.seen)]
    assert min(gaps) >= SOON_S - 1e-9
    assert min(gaps[N_SOON + 1 :]) >= PUSH_INTERVAL_S - 1e-9


def test_what_has_just_begun_is_seen_sooner(run: Run) -> None:
    tab = run.join()
    for at_s in (0.06, 0.12, 0.18, 0.24):  # a trial, its attempt, its first reports
        run.timers.run(at_s - run.timers.now_s)
        run.commit()
    run.timers.run(1)
    assert [at_s for at_s, _ in tab.seen] == pytest.approx([0, 0.06, 0.12, 0.18, PUSH_INTERVAL_S])


def test_it_is_drawn_and_encoded_once_for_all_who_watch(run: Run) -> None:
    tabs = [run.join() for _ in range(3)]
    for _ in range(8):
        run.commit()
        run.timers.run(1)
    assert run.drawn == list(range(9))
    assert [tab.seqs() for tab in tabs] == [list(range(9))] * 3
    for frames in zip(*(tab.frames for tab in tabs), strict=True):
        assert all(frame is frames[0] for frame in frames)


def test_nothing_is_drawn_and_nothing_pushed_while_nothing_changes(run: Run) -> None:
    tab = run.join()
    for _ in range(100):
        run.fanout.changed()
        assert run.timers.n_set == 0
        run.timers.run(1)
    assert (run.drawn, tab.seqs()) == ([0], [0])


def test_without_watchers_nothing_is_drawn_and_no_timer_is_set(run: Run) -> None:
    tab = run.join()
    run.commit()
    run.commit()
    run.fanout.leave(tab)
    assert run.timers.n_set == 0
    for _ in range(100):
        run.commit()
        run.timers.run(1)
    assert (run.drawn, tab.seqs()) == ([0], [0])
    assert run.join().seqs() == [102]


def test_one_that_leaves_takes_nothing_from_the_others(run: Run) -> None:
    stays, goes = run.join(), run.join()
    run.commit()
    run.fanout.leave(goes)
    run.timers.run(1)
    assert (stays.seqs(), goes.seqs()) == ([0, 1], [0])


def test_the_end_is_pushed_at_once(run: Run) -> None:
    tab = run.join()
    run.timers.run(1)
    run.commit()
    run.timers.run(0.01)
    run.commit()
    run.timers.run(0.01)
    run.commit(is_last=True)
    run.timers.run(0.0)
    assert tab.seen[-1] == (pytest.approx(1.02), 3)


def test_closing_pushes_what_nobody_was_told_of_yet_and_sets_no_timer(run: Run) -> None:
    tab = run.join()
    run.commit()
    run.seq += 1  # told of by nobody
    assert run.fanout.close().seq == 2
    assert tab.seqs() == [0, 2]
    run.commit()
    run.timers.run(1)
    assert (tab.seqs(), run.timers.n_set) == ([0, 2], 0)


def test_closing_draws_nothing_anew_that_is_drawn_already(run: Run) -> None:
    tab = run.join()
    run.commit(is_last=True)
    run.timers.run(1)
    assert run.fanout.close().seq == 1
    assert (run.drawn, tab.seqs()) == ([0, 1], [0, 1])


def test_whoever_comes_and_goes_each_sees_the_end_and_never_an_older_state() -> None:
    for seed in range(300):
        rng = random.Random(seed)
        run = Run()
        tabs: list[Tab] = []
        n_pushed = 0
        for _ in range(rng.randrange(1, 80)):
            match rng.randrange(6):
                case 0:
                    tabs.append(run.join())
                case 1 if tabs:
                    run.fanout.leave(tabs.pop(rng.randrange(len(tabs))))
                case 2:
                    run.fanout.changed()
                case 3:
                    run.commit(rng.randrange(1, 4))
                    n_pushed += 1
                case _:
                    run.timers.run(rng.random() * 0.4)
        run.commit(is_last=True)
        if rng.random() < 0.5:
            run.timers.run(0.0)
        last = run.fanout.close()
        assert last.seq == run.seq, f"seed {seed}"
        assert run.drawn == sorted(set(run.drawn)), f"seed {seed}: drawn twice"
        for tab in tabs:
            assert tab.seqs()[-1] == run.seq, f"seed {seed}: the end is missing"
            assert tab.seqs() == sorted(set(tab.seqs())), f"seed {seed}: told twice, or backwards"
        assert run.timers.n_set == 0
