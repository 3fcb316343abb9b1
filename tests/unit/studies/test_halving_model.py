"""Every interleaving of four trials under ASHA and Hyperband.

A trial reports at steps 1 and 2 and completes.  At any time it may instead fail for good, fall
silent forever, or (one of them, once) be lost and started again.  The search below visits
every state that these events can reach; a state is the pruner plus where each trial is.

What is shown, in every state:

1. Nothing waits: whatever the others did or left undone, a live trial that runs on alone is
   either stopped or complete after its own reports, and every sequence of events ends.
2. Decisions depend on reports and restarts only: a fresh pruner that is given just these
   decides the same.
3. No trial is stopped wrongly at a rung, where wrongly means: although fewer than
   ``max(1, n // eta)`` of the n scores there at that moment are better than its own.  So where
   no score was withdrawn by a restart, the best trial of a rung was not stopped there.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from jupyter_ddl.studies.pruners import AshaPruner, HyperbandPruner

LAST_STEP = 2
Judge = AshaPruner | HyperbandPruner
Event = tuple[str, int]


class Trial(NamedTuple):
    """Where a trial is."""

    step: int = 0
    end: str = ""


class State(NamedTuple):
    trials: tuple[Trial, ...]
    n_lost: int
    rungs: tuple[tuple[tuple[int, int, int], ...], ...]
    """Per bracket: sorted (rung, value, trial) that count there, kept by the model itself."""


def make_asha() -> Judge:
    return AshaPruner("max", eta=2, min_steps=1)


def make_hyperband() -> Judge:
    return HyperbandPruner("max", eta=2, min_steps=1, max_steps=2)


def bracket_and_first_step(judge: Judge, trial: int) -> tuple[int, int]:
    if isinstance(judge, AshaPruner):
        return 0, 1
    number = judge.bracket_number(trial)
    assert number is not None
    return number, 2**number


class Explorer:
    """Depth-first search over all event sequences, each state visited once."""

    def __init__(self, make: Callable[[], Judge], values: tuple[int, ...]) -> None:
        self.make = make
        self.values = values
        self.seen: set[tuple[State, tuple[bool, ...]]] = set()
        self.n_ends = 0

    def run(self) -> None:
        start = State(tuple(Trial() for _ in self.values), 0, ((), ()))
        # Explicit stack: (state, pickled pruner, reports and restarts so far).
        stack: list[tuple[State, bytes, tuple[Event, ...]]] = [
            (start, pickle.dumps(self.make()), ())
        ]
        while stack:
            state, frozen, history = stack.pop()
            live = [n for n, trial in enumerate(state.trials) if not trial.end]
            self.n_ends += not live
            for number in live:
                self.check_ends_alone(pickle.loads(frozen), state.trials[number], number)
                for event in self.events(state, number):
                    judge: Judge = pickle.loads(frozen)
                    then, kept = self.apply(judge, state, event, history)
                    flags = tuple(judge.should_prune(n) for n in range(len(self.values)))
                    if (then, flags) not in self.seen:
                        self.seen.add((then, flags))
                        self.check_only_reports_count(then, flags, kept)
                        stack.append((then, pickle.dumps(judge), kept))

    def check_ends_alone(self, judge: Judge, trial: Trial, number: int) -> None:
        """Property 1: no event of another trial is needed for this one to end."""
        for step in range(trial.step + 1, LAST_STEP + 1):
            judge.report(number, step, float(self.values[number]))
            if judge.should_prune(number):
                break
        judge.finished(number, "complete")
        assert not judge.should_prune(number)

    def events(self, state: State, number: int) -> Iterator[Event]:
        if state.trials[number].step < LAST_STEP:
            yield "report", number
        else:
            yield "complete", number
        yield "failed", number
        yield "silent", number
        if state.n_lost == 0:
            yield "lost", number

    def apply(
        self, judge: Judge, state: State, event: Event, history: tuple[Event, ...]
    ) -> tuple[State, tuple[Event, ...]]:
        kind, number = event
        trial = state.trials[number]
        if kind == "report":
            judge.report(number, trial.step + 1, float(self.values[number]))
            rungs = self.check_decision(judge, state, number, trial.step + 1)
            # A stop is obeyed at once; its trial ends as pruned.
            end = "pruned" if judge.should_prune(number) else ""
            if end:
                judge.finished(number, "pruned")
            return replaced(state, number, Trial(trial.step + 1, end), rungs), (*history, event)
        if kind == "lost":
            judge.restarted(number)
            rungs = tuple(
                tuple(entry for entry in bracket if entry[2] != number) for bracket in state.rungs
            )
            then = replaced(state, number, Trial(), rungs)
            return then._replace(n_lost=1), (*history, event)
        if kind != "silent":
            judge.finished(number, "complete" if kind == "complete" else "failed")
        return replaced(state, number, trial._replace(end=kind), state.rungs), history

    def check_decision(
        self, judge: Judge, state: State, number: int, step: int
    ) -> tuple[tuple[tuple[int, int, int], ...], ...]:
        """Property 3, against the plain list of scores that the model keeps."""
        bracket, first = bracket_and_first_step(judge, number)
        entries = list(state.rungs[bracket])
        value, goes_on, rung = self.values[number], True, 0
        while goes_on and first * 2**rung <= step:
            if (rung, value, number) not in entries:
                entries.append((rung, value, number))
                scores = [entry[1] for entry in entries if entry[0] == rung]
                better = sum(score > value for score in scores)
                goes_on = better < max(1, len(scores) // 2)
            rung += 1
        assert judge.should_prune(number) == (not goes_on), (state, number, step)
        rungs = list(state.rungs)
        rungs[bracket] = tuple(sorted(entries))
        return tuple(rungs)

    def check_only_reports_count(
        self, state: State, flags: tuple[bool, ...], history: tuple[Event, ...]
    ) -> None:
        """Property 2, and the best trial of each rung goes on (end of property 3)."""
        fresh = self.make()
        steps = dict.fromkeys(range(len(self.values)), 0)
        stopped = set()
        for kind, number in history:
            if kind == "lost":
                fresh.restarted(number)
                steps[number] = 0
            else:
                steps[number] += 1
                fresh.report(number, steps[number], float(self.values[number]))
                if fresh.should_prune(number):
                    stopped.add(number)
        pruned = {n for n, trial in enumerate(state.trials) if trial.end == "pruned"}
        assert stopped == pruned
        assert not any(flags)  # every stop was obeyed, and nobody else is asked to
        for bracket in state.rungs if state.n_lost == 0 else ():
            for rung in {entry[0] for entry in bracket}:
                best = max(entry for entry in bracket if entry[0] == rung)
                reached = [entry[0] for entry in bracket if entry[2] == best[2]]
                assert best[2] not in pruned or max(reached) > rung


def replaced(
    state: State,
    number: int,
    trial: Trial,
    rungs: tuple[tuple[tuple[int, int, int], ...], ...],
) -> State:
    trials = list(state.trials)
    trials[number] = trial
    return state._replace(trials=tuple(trials), rungs=rungs)


@pytest.mark.parametrize("make", [make_asha, make_hyperband])
def test_no_interleaving_of_four_trials_blocks_or_stops_one_wrongly(
    make: Callable[[], Judge],
) -> None:
    explorer = Explorer(make, values=(3, 1, 4, 2))

    explorer.run()

    print(f"{make.__name__}: {len(explorer.seen)} states, {explorer.n_ends} ends")
    assert explorer.n_ends > 256  # every combination of four ways to end, and more
