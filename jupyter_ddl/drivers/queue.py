"""Which trials go out next: those to be repeated first, then new ones from the source."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable

from jupyter_ddl.drivers.source import NotYet, TrialSource
from jupyter_ddl.errors import JupyterDDLError
from jupyter_ddl.ledger.run_state import RunState
from jupyter_ddl.protocol.assignment import TrialAssignment, derive_seed
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.search.batching import BatchSizer, reuse_process
from jupyter_ddl.search.study import Proposal

__all__ = ["TrialQueue"]

log = logging.getLogger(__name__)

_SHORT_TRIAL_S = 0.5
"""Below it a second batch waits at the worker, so that its slot is never idle."""


class TrialQueue:
    """Batches of attempts for the slots of one run.  Used on the controller's loop only."""

    def __init__(
        self,
        spec: RunSpec,
        source: TrialSource,
        n_asked: int,
        on_created: Callable[[Proposal], None],
        wake: Callable[[], None],
    ) -> None:
        self._spec = spec
        self._source = source
        self._n_asked = n_asked
        self._on_created = on_created
        self._wake = wake
        self._again: deque[Proposal] = deque()  # were not executed, or come from a session before
        self._retries: deque[Proposal] = deque()  # failed or evicted: alone, in a fresh process
        self._delayed: dict[int, asyncio.TimerHandle] = {}  # evicted lately, by trial
        self._attempts: dict[int, int] = {}
        self._sizer = BatchSizer()
        self._exhausted = False
        self._working: asyncio.Task[None] | None = None

    def adopt(self, state: RunState) -> None:
        """Take up what an earlier session left unfinished."""
        for trial in state.unfinished():
            self._attempts[trial.number] = state.next_attempt(trial.number) - 1
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
        fresh = self._spec.isolate or self._spec.is_grouped
        return batch, fresh or not reuse_process(self._sizer.median_trial_s)

    def put_back(self, trials: Iterable[TrialAssignment]) -> None:
        """Trials that were sent and never started: first in the queue, in order."""
        back = [Proposal(trial.trial, trial.params) for trial in trials]
        self._again.extendleft(reversed(back))

    def retry(self, trial: Proposal, delay_s: float = 0.0) -> None:
        """A trial whose attempt failed or was evicted; sent again after ``delay_s``."""
        if not delay_s:
            self._retries.append(trial)
            return
        loop = asyncio.get_running_loop()
        self._delayed[trial.number] = loop.call_later(delay_s, self._is_due, trial)

    def _is_due(self, trial: Proposal) -> None:
        del self._delayed[trial.number]
        self._retries.append(trial)
        self._wake()

    def ended(self, number: int) -> None:
        """A trial is over; nothing about it needs to be remembered."""
        self._attempts.pop(number, None)

    def observe(self, n_trials: int, duration_s: float) -> None:
        """An assignment of ``n_trials`` took ``duration_s``."""
        self._sizer.observe(n_trials, duration_s)

    def close(self) -> None:
        if self._working is not None:
            self._working.cancel()
        for timer in self._delayed.values():
            timer.cancel()

    def _attempt(self, trial: Proposal) -> TrialAssignment:
        attempt = self._attempts.get(trial.number, 0) + 1
        self._attempts[trial.number] = attempt
        return TrialAssignment(
            trial=trial.number,
            attempt=attempt,
            params=trial.params,
            seed=derive_seed(self._spec.seed, trial.number),
            item=trial.number if self._spec.verb.items else None,
        )

    def _ask(self) -> Proposal | None:
        if self._exhausted:
            return None
        answer = self._source.ask()
        if isinstance(answer, Proposal):
            self._n_asked += 1
            self._on_created(answer)
            return answer
        if isinstance(answer, NotYet):
            if answer.work is not None and self._working is None:
                self._working = asyncio.create_task(self._work(answer.work))
            return None
        self._exhausted = True
        return None

    async def _work(self, work: Callable[[], Awaitable[None]]) -> None:
        """Wait for a slow sampler; what it raises is raised again by the next ask."""
        try:
            await work()
        except JupyterDDLError as error:
            log.warning("%s: %s", self._spec.run_id, error.message)
        finally:
            self._working = None
            self._wake()
