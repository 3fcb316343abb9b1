"""Whatever arrives in whatever order, a trial has one outcome and the counts add up."""

from __future__ import annotations

import math

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from jupyter_ddl.ledger.audit import audit
from jupyter_ddl.ledger.reducer import RunState, fold, fold_all, is_late
from jupyter_ddl.ledger.snapshots import MAX_SNAPSHOT_BYTES, snapshot_of
from jupyter_ddl.protocol.codec import decode_event, encode_event
from jupyter_ddl.protocol.events import Event, Failure, RunFinished
from jupyter_ddl.protocol.run import Limits
from tests.unit.ledger.event_makers import (
    BOOM,
    begun,
    created,
    ended,
    reported,
    search_spec,
    started,
    submitted,
)

TERMINAL = {"complete", "pruned", "failed", "cancelled"}
DISK = Failure("disk", "OSError", "no space left")
LIMITS = Limits(max_own_failures=2, max_evictions=2)

trials = st.integers(0, 3)
attempts = st.integers(0, 5)
outcomes = st.sampled_from(["complete", "pruned", "failed", "cancelled", "evicted"])
values = st.none() | st.floats(allow_nan=True, width=16)


@st.composite
def any_event(draw: st.DrawFn) -> Event:
    trial, attempt = draw(trials), draw(attempts)
    kind = draw(st.sampled_from("cbbrreeeeesf"))
    if kind == "c":
        return created(trial, draw(st.sampled_from([0.5, 0.25])))
    if kind == "b":
        return begun(trial, attempt)
    if kind == "r":
        return reported(trial, attempt, draw(st.integers(0, 9)))
    if kind == "s":
        return started(draw(st.integers(1, 3)))
    if kind == "f":
        return RunFinished(1.0, draw(st.sampled_from(["complete", "failed", "cancelled"])))
    failure = draw(st.sampled_from([BOOM, DISK]))
    outcome = draw(outcomes)
    return ended(trial, attempt, outcome, draw(values), failure if outcome == "failed" else None)


def outcomes_of(state: RunState) -> dict[int, str]:
    """Outcomes that trials earned themselves, not those that the end of the run gave them."""
    return {
        number: trial.state
        for number, trial in state.trials.items()
        if trial.state in TERMINAL and number not in state.ended_with_run
    }


def check_counts(state: RunState) -> None:
    by_state = [trial.state for trial in state.trials.values()]
    for name, number in msgspec.structs.asdict(state.counts).items():
        assert number == by_state.count(name), name
    assert state.waiting == {n for n, t in state.trials.items() if t.state == "waiting"}
    assert state.running == {n for n, t in state.trials.items() if t.state == "running"}
    assert state.n_finished == state.counts.finished


@settings(max_examples=300, deadline=None)
@given(st.lists(any_event(), max_size=60))
@example([created(0, 0.5), ended(0, 1, "complete", math.nan), created(0, 0.5)])
def test_no_interleaving_gives_a_trial_two_outcomes(events: list[Event]) -> None:
    state = fold_all([submitted(search_spec(4, limits=LIMITS)), started()])
    for event in events:
        before = outcomes_of(state)
        late, n_late = is_late(state, event), state.n_late
        picture = snapshot_of(state, 50.0)
        fold(state, event)
        after = outcomes_of(state)
        assert before.items() <= after.items()
        assert state.n_late == n_late + late
        if late:
            # repr: NaN equals itself there
            as_before = msgspec.structs.replace(picture, seq=state.seq)
            assert repr(snapshot_of(state, 50.0)) == repr(as_before)
        check_counts(state)
    assert len(msgspec.json.encode(snapshot_of(state, 50.0))) <= MAX_SNAPSHOT_BYTES


@settings(max_examples=100, deadline=None)
@given(st.lists(any_event(), max_size=60))
def test_folding_again_from_bytes_gives_the_same_run(events: list[Event]) -> None:
    events = [submitted(search_spec(4, limits=LIMITS)), started(), *events]
    again = [decode_event(encode_event(event)) for event in events]
    one, two = fold_all(events), fold_all(again)
    # repr: NaN equals itself there
    assert repr(snapshot_of(one, 50.0)) == repr(snapshot_of(two, 50.0))
    assert repr(one.trials) == repr(two.trials)


class FaultyRun(RuleBasedStateMachine):
    """A driver that behaves, on a network that repeats and delays what workers sent.

    What it commits passes ``is_late`` first, as a driver's fence does; then the ledger must be
    clean, however often old messages come back.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ledger: list[Event] = []
        self.sent: list[Event] = []
        self.state = RunState()
        self.session = 1
        self.commit(submitted(search_spec(4, limits=LIMITS)))
        self.commit(started())

    def commit(self, event: Event) -> None:
        self.ledger.append(event)
        fold(self.state, event)

    def arrive(self, event: Event) -> None:
        self.sent.append(event)
        if not is_late(self.state, event):
            self.commit(event)

    @precondition(lambda self: self.state.n_created < 4)
    @rule()
    def ask(self) -> None:
        self.commit(created(self.state.n_created))

    @precondition(lambda self: self.state.waiting)
    @rule(data=st.data())
    def start(self, data: st.DataObject) -> None:
        trial = data.draw(st.sampled_from(sorted(self.state.waiting)))
        self.arrive(begun(trial, self.state.next_attempt(trial)))

    @precondition(lambda self: self.state.running)
    @rule(data=st.data(), outcome=outcomes)
    def end(self, data: st.DataObject, outcome: str) -> None:
        trial = data.draw(st.sampled_from(sorted(self.state.running)))
        self.arrive(ended(trial, self.state.trial(trial).attempt, outcome, 0.5))  # type: ignore[arg-type]

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        self.arrive(data.draw(st.sampled_from(self.sent)))

    @rule()
    def restart(self) -> None:
        self.session += 1
        self.commit(started(self.session))

    @invariant()
    def the_ledger_is_clean(self) -> None:
        assert audit(self.ledger) == []
        check_counts(self.state)
        assert self.state.n_late == 0
        finished = RunFinished(9.0, "failed")
        assert audit([*self.ledger, finished]) == []


TestFaultyRun = FaultyRun.TestCase
TestFaultyRun.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
