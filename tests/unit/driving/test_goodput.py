"""Three hundred ranks that lose a worker every 15 seconds, in virtual time: how much of it is of
use."""

from __future__ import annotations

from random import Random

import pytest

from jupyter_ddl.ledger.reducer import fold_all
from jupyter_ddl.protocol.assignment import TrialAssignment
from jupyter_ddl.protocol.events import AttemptFinished, Beat, CheckpointSaved, Reported
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.protocol.space import Uniform
from jupyter_ddl.testing.dispatcher import FakeDispatcher, Faults, _Rank
from jupyter_ddl.testing.world import World
from jupyter_ddl.verbs.search import Search

N_RANKS = 300
FAILURE_EVERY_S = 15.0
N_FAILURES = 1200
CHECKPOINT_EVERY_S = 60.0
TRIAL_S = 3600.0
"""Of steps, without any failure."""
REPLACED_AFTER_S = 10.0
"""A lost worker's place stays empty for so long.  Two pods take 7.1 s in the median."""
BEAT_EVERY_S = 20.0
BEGINS_AFTER_S = 2.0
"""From all ranks having met to the first step; a first cell after a start takes 1.98 s in all."""


class Trainings(FakeDispatcher):
    """Ranks that make a step a second, and save what they have each minute."""

    def __init__(self, world: World) -> None:
        super().__init__(world.clock, world.rng, Faults(), world._forgotten, world._gone)
        self.saved_s: dict[int, float] = {}
        """Seconds of steps in the newest checkpoint, by trial: all that the next round has."""

    def _go_on(self, rank: _Rank) -> None:
        self._clock.call_later(BEGINS_AFTER_S, self._train, rank, rank.current)

    def _train(self, rank: _Rank, trial: TrialAssignment) -> None:
        self._reach(rank, trial, self.saved_s.get(trial.trial, 0.0))

    def _reach(self, rank: _Rank, trial: TrialAssignment, at_s: float) -> None:
        if rank.is_over or rank.is_blocked or rank.current is not trial:
            return
        place = rank.assignment.place
        is_first = place is None or place.rank == 0
        # The beats of one rank will do: a step of any is one of the group.
        next_s = min(at_s + BEAT_EVERY_S, TRIAL_S) if is_first else TRIAL_S
        self._say(rank, Beat(trial.trial, trial.attempt, "cell", int(at_s), self._wall_s))
        if at_s < TRIAL_S:
            self._clock.call_later(next_s - at_s, self._reach, rank, trial, next_s)
        if is_first and at_s % CHECKPOINT_EVERY_S == 0.0 and at_s:
            number, attempt, wall_s = trial.trial, trial.attempt, self._wall_s
            file = f"{number}-a{attempt}-s{at_s:.0f}"
            self._say(
                rank,
                Reported(number, attempt, int(at_s), {"loss": 1.0}, wall_s),
                CheckpointSaved(number, attempt, int(at_s), file, 1, wall_s),
            )
            self.saved_s[number] = at_s
        if at_s == TRIAL_S:
            self._finish(rank, "complete")


class Cluster(World):
    """As many workers as ranks; one of them is lost at a time, and replaced."""

    def __init__(self, ranks_per_trial: int, n_trials: int) -> None:
        verb = Search(
            "loss",
            "min",
            n_trials,
            {"x": Uniform(0.0, 1.0)},
            max_parallel=N_RANKS // ranks_per_trial,
            window=n_trials,
            ranks_per_trial=ranks_per_trial,
        )
        spec = RunSpec("r1", verb, Program("", "In [1]"), 1, "test", 0.0)
        super().__init__(7, [spec], Faults(), workers=[1] * N_RANKS)
        self.dispatcher = self.trainings = Trainings(self)
        self.n_failures = 0
        self.n_idle = 0

    def fail(self) -> None:
        """A random worker is gone."""
        address = Random(self.n_failures).choice(sorted(self.dispatcher.workers))
        self.n_idle += not self._slots.n_busy(address)
        self._gone(address)
        self.clock.call_later(REPLACED_AFTER_S, self._add_worker, 1)
        self.n_failures += 1
        if self.n_failures < N_FAILURES:
            self.clock.call_later(FAILURE_EVERY_S, self.fail)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_nine_tenths_of_the_time_of_300_ranks_are_of_use_though_one_fails_each_15_s() -> None:
    """Goodput: seconds of steps that a checkpoint holds, of all ranks, by the time of all ranks.

    Groups of ten: a lost worker costs its nine others what they have not saved, too.
    """
    ranks_per_trial, n_trials = 10, 170
    cluster = Cluster(ranks_per_trial, n_trials)
    cluster.begin()
    cluster.clock.call_later(FAILURE_EVERY_S, cluster.fail)
    while cluster.n_failures < N_FAILURES:
        assert cluster.clock.step()
    took_s = cluster.clock.now_s
    assert took_s == pytest.approx(N_FAILURES * FAILURE_EVERY_S)
    useful_s = ranks_per_trial * sum(cluster.trainings.saved_s.values())
    goodput = useful_s / (N_RANKS * took_s)
    (run,) = cluster.runs
    n_over = fold_all(run.ledger).counts.finished
    assert n_over + N_RANKS // ranks_per_trial <= n_trials, "there was not work for all"
    while not cluster.is_over:
        assert cluster.clock.step()
    run.check()
    ends = [event for event in run.ledger if isinstance(event, AttemptFinished)]
    n_evicted = sum(event.outcome == "evicted" for event in ends)
    print(f"goodput {goodput:.3f}; {n_evicted} rounds lost, {cluster.n_idle} failures of idle")
    assert fold_all(run.ledger).counts.complete == n_trials, "0 lost"
    assert n_evicted > 0.8 * N_FAILURES, "failures that hit nobody prove nothing"
    assert goodput >= 0.9
