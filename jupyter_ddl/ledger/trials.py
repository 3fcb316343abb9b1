"""The trials of a run, as columns: a search may have a hundred thousand of them.

A :class:`TrialState` is a place in these columns and holds nothing itself.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from sys import intern
from typing import Any, Final, Generic, TypeAlias, TypeVar, get_args

from jupyter_ddl.ledger.trial_columns import N_MORE, Codes, Floats, Ints, Params
from jupyter_ddl.protocol.events import (
    AttemptFinished,
    AttemptStarted,
    CheckpointSaved,
    Failure,
    Reported,
)
from jupyter_ddl.protocol.snapshot import TrialStateName
from jupyter_ddl.protocol.space import ParamValue

__all__ = ["STATES", "TrialState", "Trials"]

T = TypeVar("T")
D = TypeVar("D")
Report: TypeAlias = tuple[tuple[str, ...], tuple[float, ...]]

STATES: tuple[TrialStateName, ...] = get_args(TrialStateName)
"""By their codes in columns."""
_CODES = {state: code for code, state in enumerate(STATES)}
_NOTHING: Report = ((), ())


class _Field(Generic[T]):
    """What a trial's row of one column holds."""

    __slots__ = ("_name",)

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, trial: TrialState, owner: type | None = None) -> T:
        value: T = getattr(trial.all, self._name)[trial.row]
        return value

    def __set__(self, trial: TrialState, value: T) -> None:
        getattr(trial.all, self._name)[trial.row] = value


class _Rare(Generic[T, D]):
    """What few trials have: the others take nothing.

    Parameters
    ----------
    usual : D
        What all others have.
    """

    __slots__ = ("_name", "_usual")

    def __init__(self, usual: D) -> None:
        self._usual = usual

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, trial: TrialState, owner: type | None = None) -> T | D:
        known: dict[int, T] = getattr(trial.all, self._name)
        return known.get(trial.row, self._usual)

    def __set__(self, trial: TrialState, value: T | D) -> None:
        known: dict[int, T | D] = getattr(trial.all, self._name)
        if value is not self._usual:
            known[trial.row] = value
        elif known:
            known.pop(trial.row, None)


class TrialState:
    """One trial."""

    __slots__ = ("all", "number", "row")

    n_attempts = _Field[int]()
    own_failures = _Rare[int, int](0)
    evictions = _Rare[int, int](0)
    step = _Field[int | None]()
    objective = _Rare[float, None](None)
    """The last reported objective of the current attempt; forgotten where there is a value."""
    worker = _Field[str]()
    log = _Field[str]()
    log_start = _Field[int | None]()
    log_end = _Field[int | None]()
    values_file = _Rare[str, None](None)
    started_at_s = _Field[float | None]()
    duration_s = _Field[float | None]()
    failure = _Rare[Failure, None](None)
    """The last attempt's, also while the trial waits for its next attempt."""
    checkpoint = _Rare[CheckpointSaved, None](None)
    """The last one of any attempt; forgotten when the trial ends, unless it may go on."""
    seq = _Field[int]()
    """How many events were folded when this trial changed for the last time."""
    reported = _Rare[Report, Report](_NOTHING)
    """Names and values of its last report; kept for running, best and last finished trials only."""
    param_names = _Field[tuple[str, ...]]()

    def __init__(self, trials: Trials, number: int, row: int) -> None:
        self.all: Final = trials
        self.number: Final = number
        self.row: Final = row
        """Its place among all trials, from 0, in the order in which they were created."""

    @property
    def attempt(self) -> int:
        """Number of the latest attempt that began or ended, from 1; 0 before the first."""
        number: int = self.all.attempt.data[self.row]
        return number

    @property
    def state(self) -> TrialStateName:
        return STATES[self.all.state[self.row]]

    @property
    def value(self) -> float | None:
        """The final objective; None until an attempt that counts has ended."""
        value = self.all.value.data[self.row]
        return None if value != value and self.row not in self.all.nans else value

    @value.setter
    def value(self, value: float | None) -> None:
        self.all.value[self.row] = value
        if value is not None and value != value:
            self.all.nans.add(self.row)
        elif self.all.nans:
            self.all.nans.discard(self.row)

    @property
    def params(self) -> dict[str, ParamValue]:
        names = self.param_names
        return dict(zip(names, self.all.params.of(self.row, names), strict=True))

    @property
    def metrics(self) -> dict[str, float]:
        """Last reported metrics; see ``reported``."""
        return dict(zip(*self.reported, strict=True))

    def begin(self, event: AttemptStarted) -> None:
        """Another attempt; of the one before nothing stays."""
        trials, row = self.all, self.row
        if trials.attempt[row]:  # not n_attempts: of one that was lost only the end may be told
            self.log_end = self.step = self.duration_s = self.objective = None
            self.reported = _NOTHING
        trials.attempt[row] = event.attempt
        trials.worker[row] = event.worker
        trials.log[row] = event.log
        trials.log_start[row] = event.log_start
        trials.started_at_s.data[row] = event.at_s
        trials.n_attempts[row] += 1

    def report(self, event: Reported, objective: str, seq: int) -> None:
        """Numbers of the current attempt, ``objective`` among them or not."""
        trials, row, metrics = self.all, self.row, event.metrics
        trials.seq[row] = seq
        trials.step[row] = event.step
        trials.reported[row] = tuple(map(intern, metrics)), tuple(metrics.values())
        if objective in metrics:
            trials.objective[row] = metrics[objective]

    def attempt_ended(self, event: AttemptFinished) -> None:
        """An attempt is over, which may have been lost before anybody heard of its begin."""
        trials, row = self.all, self.row
        trials.attempt[row] = event.attempt
        trials.duration_s.data[row] = event.duration_s
        trials.log_end[row] = event.log_end

    def end(self, event: AttemptFinished) -> None:
        """This attempt was its last one."""
        self.value = event.value
        trials, row = self.all, self.row
        if event.value is not None and trials.objective:
            trials.objective.pop(row, None)
        if event.values_file is not None:
            trials.values_file[row] = event.values_file
        elif trials.values_file:
            trials.values_file.pop(row, None)

    def move(self, state: TrialStateName, seq: int) -> TrialStateName:
        """Another state, with the run's ``seq``; returns the one before."""
        trials, row = self.all, self.row
        before = STATES[trials.state[row]]
        trials.state[row] = _CODES[state]
        trials.seq[row] = seq
        return before

    def forget_report(self) -> None:
        """No list shows it any more."""
        self.reported = _NOTHING

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TrialState) and self._told() == other._told()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        told = ", ".join(f"{name}={value!r}" for name, value in self._told().items())
        return f"TrialState({told})"

    def _told(self) -> dict[str, Any]:
        own = ("number", "row", "state", "attempt", "value", "params")
        names = [n for n, each in vars(TrialState).items() if isinstance(each, _Field | _Rare)]
        return {name: getattr(self, name) for name in (*own, *names)}


class Trials(Mapping[int, TrialState]):
    """By number, in the order in which they were created.

    The attributes are columns, by the names of a trial's fields.
    """

    def __init__(self) -> None:
        self._n = self._room = 0
        # None while all are numbered in order: a trial's number is its row.
        self._rows: dict[int, int] | None = None
        self._numbers: list[int] = []
        self.state = array("B")
        self.attempt = Ints()
        self.n_attempts = array("I")
        self.own_failures: dict[int, int] = {}
        self.evictions: dict[int, int] = {}
        self.step = Ints()
        self.value = Floats()
        self.nans: set[int] = set()
        """Rows whose value is no number."""
        self.objective: dict[int, float] = {}
        self.worker = Codes("")
        self.log = Codes("")
        self.log_start = Ints()
        self.log_end = Ints()
        self.values_file: dict[int, str] = {}
        self.started_at_s = Floats()
        self.duration_s = Floats()
        self.failure: dict[int, Failure] = {}
        self.checkpoint: dict[int, CheckpointSaved] = {}
        self.seq = array("I")
        self.reported: dict[int, Report] = {}
        self.param_names = Codes[tuple[str, ...]](())
        self.params = Params()

    def create(self, number: int, params: Mapping[str, ParamValue], seq: int = 0) -> TrialState:
        """Another trial, which waits; there is none of its number yet."""
        row = self._n
        if self._rows is None and number != row:
            self._numbers = list(range(row))
            self._rows = {each: each for each in self._numbers}
        if self._rows is not None:
            self._rows[number] = row
            self._numbers.append(number)
        if row == self._room:
            self._grow()
        for name, value in params.items():
            self.params.put(row, name, value)
        self.param_names[row] = tuple(params)
        self.attempt[row] = 0
        self.seq[row] = seq
        self._n = row + 1
        return TrialState(self, number, row)

    def number(self, row: int) -> int:
        return row if self._rows is None else self._numbers[row]

    def get(self, number: int) -> TrialState | None:  # type: ignore[override]
        """One trial; None: there is none of this number."""
        row = number if self._rows is None else self._rows.get(number, -1)
        return TrialState(self, number, row) if 0 <= row < self._n else None

    def __getitem__(self, number: int) -> TrialState:
        row = number if self._rows is None else self._rows.get(number, -1)
        if not 0 <= row < self._n:
            raise KeyError(number)
        return TrialState(self, number, row)

    def __contains__(self, number: object) -> bool:
        return number in (range(self._n) if self._rows is None else self._rows)

    def __iter__(self) -> Iterator[int]:
        return iter(range(self._n) if self._rows is None else self._rows)

    def __len__(self) -> int:
        return self._n

    def __repr__(self) -> str:
        return f"Trials({list(self.values())!r})"

    def _grow(self) -> None:
        self._room += N_MORE
        for plain in (self.state, self.n_attempts, self.seq):
            plain.extend((0,) * N_MORE)
        for column in (
            self.attempt,
            self.step,
            self.value,
            self.worker,
            self.log,
            self.log_start,
            self.log_end,
            self.started_at_s,
            self.duration_s,
            self.param_names,
        ):
            column.extend(self._room)
