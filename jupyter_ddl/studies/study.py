"""The ask/tell state of a search: which trial comes next, and what its sampler knows.

What a sampler sees is a function of trial numbers, never of timing: before trial n is asked,
exactly the trials up to ``horizon(n)`` have been told, in the order of their numbers.
Results that arrive earlier are withheld; a result that is late makes the study wait.  So the
trial list depends only on the spec, the seed and the window, whatever workers do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec

from jupyter_ddl.errors import SpecError
from jupyter_ddl.protocol.sampling import StudySpec, TrialEnd, TrialRecord
from jupyter_ddl.protocol.space import ParamValue
from jupyter_ddl.studies.axes import active, check_params, make_axes
from jupyter_ddl.studies.samplers import RemoteSampler, make_sampler

__all__ = ["Exhausted", "NeedsRemoteAsk", "NextTrial", "Proposal", "Study", "Wait"]


# What a study answers when it is asked for the next trial.

_SHOWN = 5


class Proposal(msgspec.Struct, frozen=True):
    """A new trial."""

    number: int
    params: dict[str, ParamValue]


class Wait(msgspec.Struct, frozen=True):
    """No proposal before these trials have ended (none: before ``supply`` is called)."""

    trials: tuple[int, ...]

    @property
    def text(self) -> str:
        """What the study waits for, for people."""
        if not self.trials:
            return "waiting for the sampler"
        shown = ", ".join(map(str, self.trials[:_SHOWN]))
        more = len(self.trials) - _SHOWN
        noun = "trial" if len(self.trials) == 1 else "trials"
        return f"waiting for {noun} {shown}" + (f" and {more} more" if more > 0 else "")


class NeedsRemoteAsk(msgspec.Struct, frozen=True):
    """Ask the sampler's process: tell it ``tells`` in order, ask it, and ``supply`` the answer."""

    number: int
    tells: tuple[TrialRecord, ...]
    replayed: bool = False
    """The trial is known already: the sampler only has to get into the state it had."""


class Exhausted(msgspec.Struct, frozen=True):
    """There will be no further trial."""

    reason: str


NextTrial: TypeAlias = Proposal | Wait | NeedsRemoteAsk | Exhausted


class Study:
    """Ask/tell over the sampler of a search.  No I/O; not for several threads at once.

    Parameters
    ----------
    spec
        The search.
    seed
        The run's seed.
    window
        How many trials may be unknown to the sampler when it proposes the next one (>= 1).
        Trial n waits for every trial <= n - window, and the sampler knows exactly those.
        Samplers that need no history ignore it; ``de`` waits for its whole last generation.

    Raises
    ------
    SpecError
        No trials, no parameters, a window below 1, or an unknown sampler or option.
    SpaceError
        A grid over a continuous range.
    """

    def __init__(self, spec: StudySpec, seed: int, window: int) -> None:
        if spec.n_trials < 1:
            raise SpecError(f"a search of {spec.n_trials} trials does nothing; ask for 1 or more")
        if window < 1:
            raise SpecError(f"the study's window is {window}; it must be 1 or more")
        if not spec.space:
            raise SpecError("the search has no parameters; declare at least one")
        self._sampler = make_sampler(spec, seed, window)
        points = self._sampler.n_points
        self._n_trials = spec.n_trials if points is None else min(spec.n_trials, points)
        self._whole_grid = points is not None and points <= spec.n_trials
        self._axes = make_axes(spec.space)
        self._names = tuple(spec.space)
        self._has_branches = any(axis.when for axis in self._axes)
        self._notices: list[str] = list(self._sampler.notices)
        self._ends: list[TrialEnd | None] = []  # of every trial known, by number
        self._values: list[float | None] = []
        self._params: dict[int, dict[str, ParamValue]] = {}  # until they are fed
        self._withheld: dict[int, TrialRecord] = {}  # told here, not yet fed
        self._n_asked = 0
        self._n_fed = 0
        self._n_told_gapless = 0
        self._n_refusals = 0
        self._asking: int | None = None
        self._gave_up = ""

    @property
    def n_trials(self) -> int:
        """How many trials there will be: as asked for, or the size of a smaller grid."""
        return self._n_trials

    @property
    def is_remote(self) -> bool:
        """Whether the sampler runs in another process."""
        return isinstance(self._sampler, RemoteSampler)

    @property
    def is_slow(self) -> bool:
        """Whether ``ask`` and ``replay`` may take longer than 10 ms: keep them off a loop."""
        return self._sampler.slow

    def ask(self) -> NextTrial:
        """The next trial, or why there is none now.

        Raises
        ------
        SpecError
            The sampler failed.
        """
        if self._asking is not None:
            return Wait(())
        number = self._n_asked
        replayed = number < len(self._ends)
        if not replayed and (self._gave_up or number >= self._n_trials):
            return Exhausted(self._gave_up or self._end_text())
        horizon = min(self._sampler.horizon(number) + self._n_refusals, number - 1)
        if self._n_told_gapless <= horizon:
            if not replayed:
                return self._wait(horizon)
            horizon = self._n_told_gapless - 1  # it was asked once: the window has shrunk since
        tells = self._feed(horizon)
        if isinstance(self._sampler, RemoteSampler):
            self._asking = number
            return NeedsRemoteAsk(number, tells, replayed)
        for record in tells:
            self._sampler.tell(record)
        params = self._sampler.ask(number)
        if self._has_branches or tuple(params) != self._names:
            params = active(self._axes, params)
        return self._register(number, params)

    def supply(self, number: int, params: Mapping[str, object] | None) -> Proposal | None:
        """What a remote sampler answered to ``NeedsRemoteAsk``.

        Returns
        -------
        Proposal | None
            The new trial; None when there is none: the sampler waits for more results, or the
            trial was replayed.  Then call ``ask`` again.

        Raises
        ------
        SpecError
            A parameter is missing, unknown, out of range or of a wrong type.
        """
        if number != self._asking:
            raise SpecError(
                f"parameters were supplied for trial {number}, and trial {self._asking} was asked"
            )
        replayed = number < len(self._ends)
        checked = None if params is None else check_params(self._axes, params)
        self._asking = None
        if checked is None and self._sampler.horizon(number) + self._n_refusals < number - 1:
            self._n_refusals += 1  # once more, with one more result
            return None
        if replayed:
            self._register(number, checked)
            return None
        if checked is None:
            self._gave_up = f"the sampler proposed nothing more after {number} trials"
            return None
        return self._register(number, checked)

    def tell(
        self,
        number: int,
        state: TrialEnd,
        value: float | None = None,
        step: int | None = None,
        reports: tuple[tuple[int, float], ...] = (),
    ) -> None:
        """How a trial ended.  Telling the same result again does nothing.

        Parameters
        ----------
        value
            The objective; for a pruned trial its last reported value.
        step
            The last reported step; samplers rank pruned trials by it.
        reports
            (step, value) pairs, passed on to own samplers.

        Raises
        ------
        SpecError
            The trial was never asked, or has ended in another way.
        """
        if not 0 <= number < len(self._ends):
            raise SpecError(
                f"a result came for trial {number}, and only {len(self._ends)} trials exist"
            )
        known = self._ends[number]
        if known is not None:
            if known == state and _same(self._values[number], value):
                return
            raise SpecError(
                f"trial {number} ended {known} ({self._values[number]}) and cannot end again "
                f"{state} ({value})"
            )
        self._ends[number] = state
        self._values[number] = value
        if not self._sampler.history_free:
            params = self._params.pop(number)
            self._withheld[number] = TrialRecord(number, params, state, value, step, reports)
        while (
            self._n_told_gapless < len(self._ends) and self._ends[self._n_told_gapless] is not None
        ):
            self._n_told_gapless += 1

    def replay(self, records: Sequence[TrialRecord]) -> tuple[str, ...]:
        """Bring a new study into the state of an earlier one.

        A local sampler is replayed at once; a remote one through the ``NeedsRemoteAsk`` that
        ``ask`` gives next (``replayed`` is set).  Trials ``running`` here can be told afterwards.

        Parameters
        ----------
        records
            Every trial that was asked, by number from 0.

        Returns
        -------
        tuple[str, ...]
            Notices, e.g. that the sampler proposes other parameters now; the recorded
            ones are kept.

        Raises
        ------
        SpecError
            The study is not new, or a number is missing.
        """
        if self._ends:
            raise SpecError(f"a study of {len(self._ends)} trials cannot be replayed into")
        for number, record in enumerate(records):
            if record.number != number:
                raise SpecError(f"trial {number} is missing from the record of this study")
            self._append(number, record.params)
        for record in records:
            if record.state != "running":
                self.tell(record.number, record.state, record.value, record.step, record.reports)
        if not self.is_remote:
            self._replay_locally({record.number: record.params for record in records})
        return self.take_notices()

    def take_notices(self) -> tuple[str, ...]:
        """Sentences for the user since the last call."""
        notices = tuple(self._notices)
        self._notices.clear()
        return notices

    def remaining_tells(self) -> tuple[TrialRecord, ...]:
        """Results that the sampler has not been told; for the end of a remote one."""
        last = max(self._withheld, default=-1)
        tells = tuple(self._withheld.pop(number) for number in sorted(self._withheld))
        self._n_fed = max(self._n_fed, last + 1)
        return tells

    def _replay_locally(self, recorded: Mapping[int, dict[str, ParamValue]]) -> None:
        for number in range(len(recorded)):
            proposed = self.ask()
            if isinstance(proposed, Proposal) and proposed.params != recorded[number]:
                self._disagrees(number)

    def _register(self, number: int, params: dict[str, ParamValue] | None) -> Proposal:
        if number < len(self._ends):
            known = self._params_of(number)
            if known is not None and params != known and self.is_remote:
                self._disagrees(number)
        elif params is not None:
            self._append(number, params)
        self._n_asked += 1
        self._n_refusals = 0
        return Proposal(number, params or {})

    def _params_of(self, number: int) -> dict[str, ParamValue] | None:
        record = self._withheld.get(number)
        return record.params if record is not None else self._params.get(number)

    def _append(self, number: int, params: dict[str, ParamValue]) -> None:
        self._ends.append(None)
        self._values.append(None)
        if not self._sampler.history_free:
            self._params[number] = params

    def _feed(self, horizon: int) -> tuple[TrialRecord, ...]:
        """The results up to ``horizon`` that the sampler has not been told, by number."""
        if self._sampler.history_free or horizon < self._n_fed:
            return ()
        numbers = range(self._n_fed, horizon + 1)
        self._n_fed = horizon + 1
        return tuple(self._withheld.pop(number) for number in numbers)

    def _wait(self, horizon: int) -> Wait:
        numbers = range(self._n_told_gapless, horizon + 1)
        return Wait(tuple(number for number in numbers if self._ends[number] is None))

    def _end_text(self) -> str:
        if self._whole_grid:
            return f"all {self._n_trials} points of the grid have been proposed"
        return f"all {self._n_trials} trials have been proposed"

    def _disagrees(self, number: int) -> None:
        self._notices.append(
            f"the sampler proposes other parameters for trial {number} than it did before; "
            f"the recorded ones are kept"
        )


def _same(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return one == other or (math.isnan(one) and math.isnan(other))
