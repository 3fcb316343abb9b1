"""Which trials go out next, and where each one is that is not over.  Pure."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable
from typing import Literal, TypeAlias

from jupyter_ddl.driving.machine import AskSampler, Think
from jupyter_ddl.driving.sources import NotYet, TrialSource
from jupyter_ddl.ledger.run_state import RunState, TrialState
from jupyter_ddl.protocol.assignment import TrialAssignment, derive_seed
from jupyter_ddl.protocol.events import AttemptFinished
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.studies.batching import BatchSizer, reuse_process
from jupyter_ddl.studies.study import Proposal

__all__ = ["Backoff", "LongWait", "MisplacedTrialError", "TrialQueue"]

_SHORT_TRIAL_S = 0.5
"""Below it a second batch waits at the worker, so that its slot is never idle."""
_FIRST_S = 0.1
_LONGEST_S = 10.0
_LONG_S = 60.0
"""Free slots that wait for so long for results are told of."""

Place: TypeAlias = Literal["again", "retry", "delayed", "sent", "recording"]
"""Where a trial is that is not over: in one of three queues, at a worker, or with its attempt's end
on the way to the ledger."""

_FROM: dict[Place, tuple[Place | None, ...]] = {
    "again": (None, "sent"),
    "retry": ("recording", "delayed"),
    "delayed": ("recording",),
    "sent": (None, "again", "retry"),
    "recording": ("sent",),
}


class MisplacedTrialError(Exception):
    """A trial was to come from where it is not; had it been let, it would be lost or doubled."""


class TrialQueue:
    """Batches of attempts for the slots of one run."""

    def __init__(self, spec: RunSpec, source: TrialSource, n_asked: int) -> None:
        self._spec = spec
        self._source = source
        self._n_asked = n_asked
        self._again: deque[Proposal] = deque()  # were not executed, or come from a session before
        self._retries: deque[Proposal] = deque()  # failed or evicted: alone, in a fresh process
        self._delayed: list[
            tuple[float, int, Proposal]
        ] = []  # evicted lately, by when they are due
        self._place: dict[int, Place] = {}
        self._attempts: dict[int, int] = {}
        self._sizer = BatchSizer()
        self._exhausted = False
        self.created: list[Proposal] = []
        """New trials of the last batch, which are to be recorded."""
        self.work: Think | AskSampler | None = None
        """What the source wants to have done before it proposes another trial; take it once."""
        self.waits_for_results = False
        """Whether the source had nothing to propose before more results are told."""
        self.waits_for = ""
        """Whose results these are, for people."""

    def adopt(self, state: RunState) -> None:
        """Take up what an earlier session left unfinished."""
        for trial in state.unfinished():
            self._attempts[trial.number] = state.next_attempt(trial.number) - 1
            self._move(trial.number, "again")
            self._again.append(Proposal(trial.number, trial.params))

    @property
    def is_empty(self) -> bool:
        """Whether nothing will ever come out of it, unless something is put back."""
        waits = self._again or self._retries or self._delayed
        return self._exhausted and not waits

    @property
    def may_have_more(self) -> bool:
        """Whether asking for a batch may give one, now or later."""
        if self._again or self._retries:
            return True
        return not self._exhausted and self._n_asked < self._source.n_trials

    @property
    def depth(self) -> int:
        """Assignments per slot: one that runs, and for short trials one that waits."""
        trial_s = self._sizer.median_trial_s
        return 2 if trial_s is not None and trial_s < _SHORT_TRIAL_S else 1

    def next_batch(self, n_slots: int) -> tuple[list[TrialAssignment], bool]:
        """Attempts for one assignment, and whether each needs a fresh process.

        Raises
        ------
        JupyterDDLError
            The sampler failed.
        """
        self.waits_for_results = False
        if self._retries:
            return [self._attempt(self._retries.popleft())], True
        n_left = self._source.n_trials - self._n_asked + len(self._again)
        size = 1 if self._spec.is_grouped else self._sizer.next_size(n_left, 2 * n_slots)
        batch: list[TrialAssignment] = []
        while len(batch) < size:
            trial = self._again.popleft() if self._again else self._ask()
            if trial is None:
                break
            batch.append(self._attempt(trial))
        return batch, self._wants_fresh()

    def _wants_fresh(self) -> bool:
        if self._spec.isolate or self._spec.is_grouped:
            return True
        # What the module of one item has loaded, a model perhaps, serves the next, however long
        # they take; trials are to find the same whatever was before them.
        return not (self._spec.verb.can.has_items or reuse_process(self._sizer.median_trial_s))

    def find_out(self) -> None:
        """Learn whether the source has nothing more, without a place to send a trial to."""
        self.waits_for_results = False
        trial = self._ask()
        if trial is not None:
            self._move(trial.number, "again")
            self._again.append(trial)

    def put_back(self, trials: Iterable[TrialAssignment]) -> None:
        """Trials that were sent and never started: first in the queue, in order."""
        back = [Proposal(trial.trial, trial.params) for trial in trials]
        for trial in back:
            self._move(trial.number, "again")
        self._again.extendleft(reversed(back))

    def recording(self, number: int) -> None:
        """The end of a trial's attempt is on its way to the ledger."""
        self._move(number, "recording")

    def retry(self, trial: Proposal, due_s: float | None = None) -> None:
        """A trial whose attempt failed or was evicted; it can be sent again from ``due_s`` on."""
        if due_s is None:
            self._move(trial.number, "retry")
            self._retries.append(trial)
        else:
            self._move(trial.number, "delayed")
            heapq.heappush(self._delayed, (due_s, trial.number, trial))

    def ended(self, number: int) -> None:
        """A trial is over; nothing about it needs to be remembered."""
        self._move(number, None)
        self._attempts.pop(number, None)

    def release(self, now_s: float) -> None:
        """Let go what has waited for long enough."""
        while self._delayed and self._delayed[0][0] <= now_s:
            _, number, trial = heapq.heappop(self._delayed)
            self._move(number, "retry")
            self._retries.append(trial)

    @property
    def due_s(self) -> float | None:
        """When the next trial has waited for long enough."""
        return self._delayed[0][0] if self._delayed else None

    def observe(self, n_trials: int, duration_s: float) -> None:
        """An assignment of ``n_trials`` took ``duration_s``."""
        self._sizer.observe(n_trials, duration_s)

    def _move(self, number: int, place: Place | None) -> None:
        before = self._place.get(number)
        if place is None:
            if before != "recording":
                raise MisplacedTrialError(f"trial {number} is over, and it was {before}")
            del self._place[number]
            return
        if before not in _FROM[place]:
            raise MisplacedTrialError(f"trial {number} goes from {before} to {place}")
        self._place[number] = place

    def _attempt(self, trial: Proposal) -> TrialAssignment:
        number = trial.number
        attempt = self._attempts.get(number, 0) + 1
        self._attempts[number] = attempt
        self._move(number, "sent")
        return TrialAssignment(
            trial=number,
            attempt=attempt,
            params=trial.params,
            seed=derive_seed(self._spec.seed, number),
            item=number if self._spec.verb.items else None,
        )

    def _ask(self) -> Proposal | None:
        if self._exhausted:
            return None
        answer = self._source.ask()
        if isinstance(answer, Proposal):
            self._n_asked += 1
            self.created.append(answer)
            return answer
        if isinstance(answer, NotYet):
            self.work = answer.work
            self.waits_for_results = answer.work is None
            self.waits_for = answer.text
            return None
        self._exhausted = True
        return None


class LongWait:
    """Tells once whom free slots wait for, when that takes long."""

    def __init__(self) -> None:
        self._text = ""
        self.due_s: float | None = None
        """When it is long (monotonic seconds); None: nothing is to be told."""

    def look(self, text: str, now_s: float) -> str:
        """A sentence for people, or nothing.

        Parameters
        ----------
        text : str
            Whom they wait for now; empty: no slot waits.
        """
        if text != self._text:
            self._text = text
            self.due_s = now_s + _LONG_S if text else None
        if self.due_s is None or now_s < self.due_s:
            return ""
        self.due_s = None
        return f"slots are free, and the sampler is {text} before it proposes another trial"


class Backoff:
    """How long a trial that lost its worker waits until it is tried again.

    Doubles the wait from loss to loss; progress sets it back.  A worker that goes while it is still
    known to the scheduler, or a host that can't start a rank, would else use up the budget of
    losses within a second.
    """

    def __init__(self) -> None:
        self._last: dict[int, tuple[int, float]] = {}  # trial -> how far it had come, last wait

    def delay_s(self, trial: TrialState, event: AttemptFinished) -> float:
        """Seconds until the trial may be sent again, after an attempt that did not end it."""
        if event.outcome != "evicted":
            self._last.pop(trial.number, None)
            return 0.0
        far = _progress(trial)
        before, waited_s = self._last.get(trial.number, (-1, 0.0))
        # An attempt that ran for longer than any wait is not part of a series of early losses.
        is_new = far > before or event.duration_s > _LONGEST_S or not waited_s
        delay_s = _FIRST_S if is_new else min(2 * waited_s, _LONGEST_S)
        self._last[trial.number] = (max(far, before), delay_s)
        return delay_s

    def forget(self, number: int) -> None:
        """A trial is over."""
        self._last.pop(number, None)


def _progress(trial: TrialState) -> int:
    saved = -1 if trial.checkpoint is None else trial.checkpoint.step
    return max(saved, -1 if trial.step is None else trial.step)
