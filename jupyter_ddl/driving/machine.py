"""What the machines that drive runs have in common: events in, instructions out.  Pure.

A machine does nothing itself.  :meth:`Machine.handle` takes one event and returns what is to be
done because of it; a shell does that and comes back with further events.  So the same machine runs
over Dask, and in virtual time against a simulated cluster.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable
from typing import Generic, NoReturn, TypeAlias, TypeVar

import msgspec

from jupyter_ddl.errors import JupyterDDLError
from jupyter_ddl.protocol.assignment import Assignment, Control, StopWhen
from jupyter_ddl.protocol.events import Event, RankEvent
from jupyter_ddl.protocol.sampling import TrialRecord
from jupyter_ddl.protocol.verb import StopHow

__all__ = [
    "Abandon",
    "Answered",
    "Arrived",
    "Ask",
    "AskHeld",
    "AskSampler",
    "AskStop",
    "Begun",
    "CommitPaused",
    "Committed",
    "EndWorker",
    "Ended",
    "FinishSampler",
    "Happening",
    "IllegalTransitionError",
    "Instruction",
    "KeepBlobs",
    "LookForBlobs",
    "Machine",
    "NotAnswered",
    "Now",
    "Over",
    "Record",
    "Refuse",
    "ReleaseWorkers",
    "RemoveFile",
    "Replay",
    "Reply",
    "Send",
    "Signal",
    "StopWanted",
    "Think",
    "Told",
    "TrialStopWanted",
    "WaitUntil",
    "WakeOthers",
    "Woken",
    "Work",
    "WriteStacks",
    "earliest",
]

_N_REMEMBERED = 64
_N_TOLD = 16


class Now(msgspec.Struct, frozen=True, gc=False):
    """One reading of the shell's clocks."""

    mono_s: float
    """Monotonic seconds in which the shell could act: all deadlines."""
    wall_s: float
    """Unix seconds: for records only."""


# -- questions: work that takes long, done outside the machine -------------------------------------


class Work(msgspec.Struct, frozen=True):
    """Base of what a machine can ask for; the runs of a verb may have work of their own."""


class Think(Work, frozen=True):
    """Have a slow study propose a trial.  The machine leaves the study alone until the answer."""


class AskSampler(Work, frozen=True):
    """Tell a user's own sampler these results, and ask it for a trial."""

    number: int
    tells: tuple[TrialRecord, ...]


class AskStop(Work, frozen=True):
    """Ask a user's own sampler whether a running trial is to stop."""

    record: TrialRecord


class AskHeld(Work, frozen=True):
    """Ask a worker whether it executes an assignment, or will; answered with a bool."""

    assignment_id: str


class FinishSampler(Work, frozen=True):
    """Nothing more will be asked: tell a user's own sampler the last results, and end it."""

    tells: tuple[TrialRecord, ...]


class Replay(Work, frozen=True):
    """Bring the study and the pruning policy into the state that earlier sessions left."""

    records: tuple[TrialRecord, ...]
    reads_ledger: bool
    """Whether there was an earlier session, whose events the policy has to see."""


class WriteStacks(Work, frozen=True):
    """Save the stacks of a group that hangs; answered even if the disk is full."""

    directory: str
    """Relative to the run's."""
    texts: dict[int, str]
    """By rank."""


class LookForBlobs(Work, frozen=True):
    """See whether all that the run is made of is on this host; the answer tells what is not."""


class KeepBlobs(Work, frozen=True):
    """Have large values on disk, too; the answer tells what a restart of the host would cost."""


# -- events: what has happened ---------------------------------------------------------------------


class Begun(msgspec.Struct, frozen=True):
    """The shell is ready.  The first event of all."""


class Committed(msgspec.Struct, frozen=True):
    """These events are on record now, in the order in which they were to be recorded."""

    events: tuple[Event, ...]


class CommitPaused(msgspec.Struct, frozen=True):
    """Nothing can be committed (the disk is full); with an empty text, it can be again."""

    text: str


class Arrived(msgspec.Struct, frozen=True):
    """A rank has sent events: in order, once each, perhaps of an attempt that no longer counts."""

    assignment_id: str
    events: tuple[RankEvent, ...]


class Ended(msgspec.Struct, frozen=True):
    """An assignment is over, after all its events; exactly once per :class:`Send`."""

    assignment_id: str
    lost: str = ""
    """Why what it has not reported is lost; empty when it came to its own end."""
    lacks_blob: bool = False
    """Whether that is because the controller's host has lost something of the run."""


class Woken(msgspec.Struct, frozen=True):
    """A deadline has passed, or slots or workers have changed."""


class Told(msgspec.Struct, frozen=True):
    """Something about the cluster that users of the run are to know; nothing follows from it."""

    text: str


class StopWanted(msgspec.Struct, frozen=True):
    """Somebody wants the run to end before its time."""

    how: StopHow
    by: str
    reason: str = ""


class TrialStopWanted(msgspec.Struct, frozen=True):
    """Somebody wants one running trial to end."""

    trial: int
    when: StopWhen
    by: str


class Answered(msgspec.Struct, frozen=True):
    """The answer to an :class:`Ask`."""

    question: int
    answer: object = None


class NotAnswered(msgspec.Struct, frozen=True):
    """An :class:`Ask` that failed: the only other thing that can become of it."""

    question: int
    error: JupyterDDLError


Happening: TypeAlias = (
    Begun
    | Committed
    | CommitPaused
    | Arrived
    | Ended
    | Woken
    | Told
    | StopWanted
    | TrialStopWanted
    | Answered
    | NotAnswered
)


# -- instructions: what is to be done --------------------------------------------------------------


class Record(msgspec.Struct, frozen=True):
    """Commit these events; :class:`Committed` follows."""

    events: tuple[Event, ...]


class Send(msgspec.Struct, frozen=True):
    """Have a worker execute an assignment; :class:`Ended` follows, whatever becomes of it."""

    assignment: Assignment
    worker: str


class Abandon(msgspec.Struct, frozen=True):
    """Wait for an assignment no longer; its :class:`Ended` follows at once."""

    assignment_id: str


class Signal(msgspec.Struct, frozen=True):
    """Deliver signals to a worker's ranks, one after another; a worker that is gone needs none."""

    worker: str
    controls: tuple[Control, ...]


class Ask(msgspec.Struct, frozen=True):
    """Do some work and come back with :class:`Answered` or :class:`NotAnswered`."""

    question: int
    work: Work


class RemoveFile(msgspec.Struct, frozen=True):
    """Remove a file of the run that nobody wants any more: brought values, an output."""

    path: str
    """Relative to the run's directory."""


class WaitUntil(msgspec.Struct, frozen=True):
    """Come back with :class:`Woken` at this monotonic time; replaces the wait before it."""

    at_s: float | None


class WakeOthers(msgspec.Struct, frozen=True):
    """Places have become free: other runs may want them."""


class EndWorker(msgspec.Struct, frozen=True):
    """End a worker that does not do its work, if it is ours: another one takes its place."""

    worker: str


class ReleaseWorkers(msgspec.Struct, frozen=True):
    """End the run's idle rank processes on these workers."""

    workers: tuple[str, ...]


class Reply(msgspec.Struct, frozen=True):
    """Answer a client's request; without a result: done as asked."""

    request: int
    result: object = None


class Refuse(msgspec.Struct, frozen=True):
    """Answer a client's request with why it can't be done."""

    request: int
    error: JupyterDDLError


class Over(msgspec.Struct, frozen=True):
    """The last record is committed.  The last instruction of all."""


Instruction: TypeAlias = (
    Record
    | Send
    | Abandon
    | Signal
    | Ask
    | RemoveFile
    | WaitUntil
    | WakeOthers
    | EndWorker
    | ReleaseWorkers
    | Reply
    | Refuse
    | Over
)

E = TypeVar("E")
I = TypeVar("I")  # noqa: E741 - events in, instructions out


class IllegalTransitionError(JupyterDDLError):
    """A machine was told what cannot happen: a bug in it, or in its shell.

    ``story`` has the last events of the thing that it is about, and what was done because of each.
    """

    @property
    def story(self) -> tuple[str, ...]:
        story: tuple[str, ...] = self.fields.get("story", ())
        return story


class Machine(ABC, Generic[E, I]):
    """Base of the machines.  Not for several threads, and not re-entrant."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._out: list[I] = []
        self._past: deque[tuple[float, E, list[I]]] = deque(maxlen=_N_REMEMBERED)

    def handle(self, event: E, now: Now) -> list[I]:
        """What is to be done, in this order, because of ``event``.

        Raises
        ------
        IllegalTransitionError
            It cannot have happened.
        """
        out: list[I] = []
        self._out = out
        self._past.append((now.mono_s, event, out))
        self._on(event, now)
        return out

    @abstractmethod
    def _on(self, event: E, now: Now) -> None:
        """Decide; :meth:`_do` what was decided."""

    def _do(self, instruction: I) -> None:
        self._out.append(instruction)

    def _illegal(self, what: str, about: str = "") -> NoReturn:
        """Refuse an event, with the story of what it is ``about`` (its name in the events)."""
        story = self.story(about)
        told = "\n  ".join(story)
        raise IllegalTransitionError(f"{self._name}: {what}\n  {told}", story=story, about=about)

    def story(self, about: str = "") -> tuple[str, ...]:
        """The last events, and what was done because of each; of one thing, where that is said."""
        lines = (f"{at_s:.3f} {_brief(event)} -> {_briefs(out)}" for at_s, event, out in self._past)
        told = [line for line in lines if about in line]
        return tuple(told[-_N_TOLD:])


def earliest(*deadlines: float | None) -> float | None:
    """The first of the deadlines that there are."""
    known = [at_s for at_s in deadlines if at_s is not None]
    return min(known) if known else None


def _briefs(things: Iterable[object]) -> str:
    return ", ".join(map(_brief, things)) or "nothing"


def _brief(thing: object) -> str:
    """One event or instruction without the bulk of what it carries."""
    match thing:
        case Send(assignment=assignment, worker=worker):
            trials = ", ".join(f"{each.trial}.{each.attempt}" for each in assignment.trials)
            return f"Send({assignment.assignment_id} [{trials}] to {worker})"
        case Record(events=events) | Committed(events=events):
            return f"{type(thing).__name__}({', '.join(map(_brief_record, events))})"
        case Arrived(assignment_id=name, events=events):
            return f"Arrived({name}: {', '.join(map(_brief_record, events))})"
        case Ask(question=question, work=work):
            return f"Ask({question}: {type(work).__name__})"
        case _:
            return repr(thing)


def _brief_record(event: object) -> str:
    facts = [getattr(event, name, None) for name in ("trial", "attempt", "outcome")]
    return f"{type(event).__name__} {'.'.join(str(fact) for fact in facts if fact is not None)}"
