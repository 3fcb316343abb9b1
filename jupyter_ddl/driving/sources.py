"""Where trials come from: a study for a search, the elements of a sequence for a map.  Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol, TypeAlias, cast

import msgspec

from jupyter_ddl.driving.machine import AskSampler, Think
from jupyter_ddl.errors import JupyterDDLError, TrialError
from jupyter_ddl.ledger.run_state import TrialState
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.protocol.sampling import TrialEnd, TrialRecord
from jupyter_ddl.protocol.snapshot import TrialStateName
from jupyter_ddl.protocol.space import ParamValue
from jupyter_ddl.studies.study import Exhausted, NeedsRemoteAsk, Proposal, Study, Wait

__all__ = ["MapSource", "Next", "NotYet", "StudySource", "TrialSource", "make_source", "to_record"]


class NotYet(msgspec.Struct, frozen=True):
    """Nothing to run now.

    ``work`` is to be done first, then ask again (a sampler that takes long, or that is the user's
    own and lives in a rank); None: when more results were told, or such work is done.
    """

    work: Think | AskSampler | None = None
    text: str = ""
    """For people: whose results are waited for."""


Next: TypeAlias = Proposal | NotYet | Exhausted


def to_record(trial: TrialState) -> TrialRecord:
    """A trial's state as samplers see it: ``running`` for everything that has not ended."""
    state = trial.state
    ended: TrialEnd | Literal["running"]
    ended = "running" if state == "waiting" or state == "running" else state
    return TrialRecord(trial.number, trial.params, ended, trial.value, trial.step)


class Told(Protocol):
    """How a trial ended, as far as a study needs to be told: it knows the parameters itself."""

    @property
    def number(self) -> int: ...
    @property
    def state(self) -> TrialStateName: ...
    @property
    def value(self) -> float | None: ...
    @property
    def step(self) -> int | None: ...


class TrialSource(Protocol):
    """What a driver needs to know about the trials of its run."""

    @property
    def n_trials(self) -> int: ...

    def ask(self) -> Next: ...

    def answered(self, answer: object) -> None:
        """What came of the work of a :class:`NotYet`."""
        ...

    def failed(self, error: JupyterDDLError) -> None:
        """The work of a :class:`NotYet` failed: the next ``ask`` raises this."""
        ...

    def tell(self, trial: Told) -> None: ...

    def replay(self, past: Sequence[TrialRecord]) -> None:
        """Rebuild after a restart, from every trial of the sessions before.  May take long."""
        ...

    def take_notices(self) -> Sequence[str]:
        """Sentences worth telling the user since the last call."""
        ...

    @property
    def has_own_sampler(self) -> bool:
        """Whether there is a process to be asked ``should_stop``, and to be ended."""
        ...

    def last_tells(self) -> tuple[TrialRecord, ...]:
        """Results that a user's own sampler has not been told."""
        ...


class MapSource:
    """Trial n is element n."""

    has_own_sampler = False

    def __init__(self, n_items: int) -> None:
        self.n_trials = n_items
        self._next = 0

    def ask(self) -> Next:
        if self._next >= self.n_trials:
            return Exhausted(f"all {self.n_trials} elements have been sent")
        self._next += 1
        return Proposal(self._next - 1, {})

    def answered(self, answer: object) -> None:
        """Nothing is ever asked."""

    def failed(self, error: JupyterDDLError) -> None:
        """Nothing is ever asked."""

    def tell(self, trial: Told) -> None:
        """Elements do not depend on each other."""

    def replay(self, past: Sequence[TrialRecord]) -> None:
        self._next = len(past)

    def take_notices(self) -> Sequence[str]:
        return ()

    def last_tells(self) -> tuple[TrialRecord, ...]:
        return ()


class StudySource:
    """The study of a search, kept off the event loop where it is slow.

    While the study works in a thread or its sampler in a rank, results are held back and told
    afterwards, so that the study is never used from two sides at once.
    """

    def __init__(self, study: Study) -> None:
        self.study = study
        self.has_own_sampler = study.is_remote
        self._ready: list[Proposal] = []
        self._held: list[Told] = []
        self._working: Think | AskSampler | None = None
        self._waits = False  # for a result: thinking once more before one comes is in vain
        self._waits_for = ""
        self._ended: Exhausted | None = None
        self._failed: JupyterDDLError | None = None

    @property
    def n_trials(self) -> int:
        return self.study.n_trials

    def ask(self) -> Next:
        if self._failed is not None:
            raise self._failed
        if self._ready:
            return self._ready.pop(0)
        if self._working is not None:
            return NotYet()
        if self._ended is not None:
            return self._ended
        if self._waits:
            return NotYet(text=self._waits_for)
        if self.study.is_slow:
            return self._begin(Think())
        return self._interpret(self.study.ask())

    def answered(self, answer: object) -> None:
        work, self._working = self._working, None
        try:
            if isinstance(work, AskSampler):
                params = cast("Mapping[str, ParamValue] | None", answer)
                answer = self.study.supply(work.number, params)
        except JupyterDDLError as error:
            self._failed = error
        self._waits = isinstance(answer, Wait)
        self._waits_for = answer.text if isinstance(answer, Wait) else ""
        self._tell_held()
        if isinstance(answer, Proposal):
            self._ready.append(answer)
        elif isinstance(answer, Exhausted):
            self._ended = answer

    def failed(self, error: JupyterDDLError) -> None:
        self._working = None
        self._failed = error
        self._tell_held()

    def tell(self, trial: Told) -> None:
        if self._working is not None:
            self._held.append(trial)
        else:
            self._tell(trial)

    def replay(self, past: Sequence[TrialRecord]) -> None:
        if past:
            self.study.replay(past)

    def take_notices(self) -> Sequence[str]:
        return () if self._working is not None else self.study.take_notices()

    def last_tells(self) -> tuple[TrialRecord, ...]:
        return self.study.remaining_tells()

    def _begin(self, work: Think | AskSampler) -> NotYet:
        self._working = work
        return NotYet(work)

    def _interpret(self, answer: object) -> Next:
        if isinstance(answer, Proposal | Exhausted):
            return answer
        if isinstance(answer, NeedsRemoteAsk):
            if not self.has_own_sampler:
                raise TrialError("the sampler of this search has no process to run in")
            return self._begin(AskSampler(answer.number, answer.tells))
        return NotYet(text=answer.text if isinstance(answer, Wait) else "")

    def _tell_held(self) -> None:
        held, self._held = self._held, []
        for trial in held:
            self._tell(trial)

    def _tell(self, trial: Told) -> None:
        self._waits = False
        state = trial.state
        if state != "running" and state != "waiting":
            self.study.tell(trial.number, state, trial.value, trial.step)


def make_source(spec: RunSpec, max_parallel: int) -> MapSource | StudySource:
    """Where the trials of a run come from.

    Raises
    ------
    JupyterDDLError
        A sampler or a space that no study can be made of.
    """
    asked = spec.verb.study
    if asked is None:
        return MapSource(spec.n_trials)
    return StudySource(Study(asked, spec.seed, asked.window or 2 * max_parallel))
