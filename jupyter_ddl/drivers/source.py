"""Where trials come from: a study for a search, the elements of a sequence for a map."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeAlias

import msgspec

from jupyter_ddl.drivers.remote_sampler import RemoteSamplerLink
from jupyter_ddl.errors import TrialError
from jupyter_ddl.protocol.sampling import TrialRecord
from jupyter_ddl.search.study import Exhausted, NeedsRemoteAsk, Proposal, Study

__all__ = ["MapSource", "Next", "NotYet", "StudySource", "TrialSource"]


class NotYet(msgspec.Struct, frozen=True):
    """Nothing to run now.

    ``work`` is to be awaited first, then ask again (a sampler that takes long, or that is the
    user's own and lives in a rank); None: when more results were told.
    """

    work: Callable[[], Awaitable[None]] | None = None


Next: TypeAlias = Proposal | NotYet | Exhausted


class TrialSource(Protocol):
    """What a driver needs to know about the trials of its run."""

    @property
    def n_trials(self) -> int: ...

    def ask(self) -> Next: ...

    def tell(self, record: TrialRecord) -> None: ...

    async def replay(self, past: Sequence[TrialRecord]) -> None:
        """Rebuild after a restart, from every trial of the sessions before."""
        ...

    def take_notices(self) -> Sequence[str]:
        """Sentences worth telling the user since the last call."""
        ...

    @property
    def checks_early(self) -> bool:
        """Whether ``should_stop`` is worth asking."""
        ...

    async def should_stop(self, record: TrialRecord) -> bool:
        """Whether a running trial is to stop, by its ``reports`` so far."""
        ...

    async def finish(self) -> None:
        """No more will be asked or told."""
        ...


class MapSource:
    """Trial n is element n."""

    def __init__(self, n_items: int) -> None:
        self.n_trials = n_items
        self._next = 0

    def ask(self) -> Next:
        if self._next >= self.n_trials:
            return Exhausted(f"all {self.n_trials} elements have been sent")
        self._next += 1
        return Proposal(self._next - 1, {})

    def tell(self, record: TrialRecord) -> None:
        """Elements do not depend on each other."""

    async def replay(self, past: Sequence[TrialRecord]) -> None:
        self._next = len(past)

    def take_notices(self) -> Sequence[str]:
        return ()

    checks_early = False

    async def should_stop(self, record: TrialRecord) -> bool:
        return False

    async def finish(self) -> None:
        """Nothing is held."""


class StudySource:
    """The study of a search, kept off the event loop where it is slow.

    While the study works in a thread or its sampler in a rank, results are held back and told
    afterwards, so that the study is never used from two sides at once.
    """

    def __init__(self, study: Study, sampler: RemoteSamplerLink | None) -> None:
        self._study = study
        self._sampler = sampler
        self._ready: list[Proposal] = []
        self._held: list[TrialRecord] = []
        self._busy = False
        self._ended: Exhausted | None = None
        self._failed: BaseException | None = None

    @property
    def n_trials(self) -> int:
        return self._study.n_trials

    def ask(self) -> Next:
        if self._failed is not None:
            raise self._failed
        if self._ready:
            return self._ready.pop(0)
        if self._busy:
            return NotYet()
        if self._ended is not None:
            return self._ended
        if self._study.is_slow:
            return NotYet(work=self._ask_in_thread)
        return self._interpret(self._study.ask())

    def tell(self, record: TrialRecord) -> None:
        if self._busy:
            self._held.append(record)
        else:
            self._tell(record)

    async def replay(self, past: Sequence[TrialRecord]) -> None:
        if past:
            await asyncio.to_thread(self._study.replay, past)

    def take_notices(self) -> Sequence[str]:
        return self._study.take_notices()

    @property
    def checks_early(self) -> bool:
        return self._sampler is not None

    async def should_stop(self, record: TrialRecord) -> bool:
        return self._sampler is not None and await self._sampler.should_stop(record)

    async def finish(self) -> None:
        if self._sampler is not None:
            await self._sampler.finish(self._study.remaining_tells())

    def _interpret(self, answer: object) -> Next:
        if isinstance(answer, Proposal | Exhausted):
            return answer
        if isinstance(answer, NeedsRemoteAsk):
            return NotYet(work=lambda: self._ask_sampler(answer))
        return NotYet()

    async def _ask_in_thread(self) -> None:
        self._busy = True
        try:
            answer = await asyncio.to_thread(self._study.ask)
        except BaseException as error:
            self._failed = error
            raise
        finally:
            self._release()
        if isinstance(answer, Proposal):
            self._ready.append(answer)
        elif isinstance(answer, Exhausted):
            self._ended = answer

    async def _ask_sampler(self, question: NeedsRemoteAsk) -> None:
        if self._sampler is None:
            raise TrialError("the sampler of this search has no process to run in")
        self._busy = True
        try:
            params = await self._sampler.ask(question.number, question.tells)
            proposal = self._study.supply(question.number, params)
        except BaseException as error:
            self._failed = error
            raise
        finally:
            self._release()
        if proposal is not None:
            self._ready.append(proposal)

    def _release(self) -> None:
        self._busy = False
        held, self._held = self._held, []
        for record in held:
            self._tell(record)

    def _tell(self, record: TrialRecord) -> None:
        if record.state == "running":
            return
        self._study.tell(record.number, record.state, record.value, record.step, record.reports)
