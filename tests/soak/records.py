"""What the runs of a soak have on disk: who works on what now, and what came of it in the end."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from jupyter_ddl.errors import JupyterDDLError
from jupyter_ddl.ledger.audit import audit
from jupyter_ddl.ledger.reader import LedgerReader
from jupyter_ddl.protocol.events import (
    AttemptFinished,
    AttemptStarted,
    Event,
    RankStarted,
    Reported,
    RunFinished,
    RunSubmitted,
    TrialCreated,
)
from jupyter_ddl.store.paths import ledger_path, runs_dir

__all__ = ["Record", "Records", "Worked"]


@dataclass(frozen=True)
class Worked:
    """One attempt that was under way at a moment."""

    run_id: str
    trial: int
    attempt: int
    pids: frozenset[int]


@dataclass
class Record:
    """One run, as its ledger tells it up to now."""

    run_id: str
    verb: str
    events: list[Event] = field(default_factory=list)
    under_way: dict[int, int] = field(default_factory=dict)
    """Trial to attempt."""
    pids: dict[tuple[int, int], set[int]] = field(default_factory=lambda: defaultdict(set))
    newest: dict[int, tuple[int, float]] = field(default_factory=dict)
    """Trial to the attempt that reported last, and when (Unix seconds)."""
    ended: set[int] = field(default_factory=set)
    is_over: bool = False
    reported_at_s: float = 0.0
    """When some trial reported last."""

    def take(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, AttemptStarted | RankStarted):
            self.under_way[event.trial] = event.attempt
            self.pids[event.trial, event.attempt].add(event.pid)
        elif isinstance(event, Reported):
            self.newest[event.trial] = (event.attempt, event.at_s)
            self.reported_at_s = max(self.reported_at_s, event.at_s)
        elif isinstance(event, AttemptFinished):
            if self.under_way.get(event.trial) == event.attempt:
                del self.under_way[event.trial]
            if event.outcome == "complete":
                self.ended.add(event.trial)
        elif isinstance(event, RunFinished):
            self.is_over = True

    def broken(self) -> list[str]:
        """Promises that its ledger breaks; empty when it is whole."""
        found = audit(self.events)
        end = next((e for e in self.events if isinstance(e, RunFinished)), None)
        if end is None or end.state != "complete":
            found.append(f"it ended as {end}")
        created = [e.trial for e in self.events if isinstance(e, TrialCreated)]
        complete = [e.trial for e in self._ends("complete")]
        if sorted(complete) != sorted(created):
            found.append(f"trials {created} were created, {complete} completed")
        return [f"run {self.run_id} ({self.verb}): {text}" for text in found]

    def differs_from(self, other: Record) -> str:
        """In what it came to something else than another run of its cell and seed; empty: nothing.

        Both may lack the reports that nobody had committed when a controller was killed: who goes
        on from the checkpoint behind them does not make them again.
        """
        for name in ("params", "values"):
            mine, others = getattr(self, name)(), getattr(other, name)()
            if mine != others:
                return f"{name} are {mine} and not {others}"
        mine, others = self.reports(), other.reports()
        for place in mine.keys() & others.keys():
            if mine[place] != others[place]:
                return f"trial, step {place} reported {mine[place]} and not {others[place]}"
        return ""

    def params(self) -> dict[int, Any]:
        return {e.trial: e.params for e in self.events if isinstance(e, TrialCreated)}

    def values(self) -> dict[int, Any]:
        return {e.trial: e.value for e in self._ends("complete")}

    def reports(self) -> dict[tuple[int, int], Any]:
        """By trial and step."""
        of_first = (e for e in self.events if isinstance(e, Reported) and not e.rank)
        return {(e.trial, e.step): e.metrics for e in of_first}

    def n_ended_attempts(self, *outcomes: str) -> int:
        return len(self._ends(*outcomes))

    def _ends(self, *outcomes: str) -> list[AttemptFinished]:
        ends = (e for e in self.events if isinstance(e, AttemptFinished))
        return [e for e in ends if e.outcome in outcomes]


class Records:
    """All runs of this process's home, followed as they grow."""

    def __init__(self) -> None:
        self._readers: dict[str, LedgerReader] = {}
        self.runs: dict[str, Record] = {}

    def poll(self) -> None:
        for path in runs_dir().iterdir():
            if path.name not in self._readers and path.name not in self.runs:
                # A run's directory is there a moment before its first record.
                with contextlib.suppress(JupyterDDLError, OSError):
                    self._readers[path.name] = LedgerReader(ledger_path(path.name))
        for run_id, reader in tuple(self._readers.items()):
            for event in reader.poll():
                if isinstance(event, RunSubmitted):
                    self.runs[run_id] = Record(run_id, type(event.spec.verb).__name__.lower())
                self.runs[run_id].take(event)
            if run_id in self.runs and self.runs[run_id].is_over:
                # Looked at fifty times a second, hundreds of them would take a core.
                reader.close()
                del self._readers[run_id]

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()

    def unfinished(self, verb: str = "") -> list[Record]:
        return [r for r in self.runs.values() if not r.is_over and verb in ("", r.verb)]

    def worked(self) -> list[Worked]:
        """Attempts under way now."""
        return [
            Worked(run.run_id, trial, attempt, frozenset(run.pids[trial, attempt]))
            for run in self.unfinished()
            for trial, attempt in run.under_way.items()
        ]

    def goes_on(self, work: Worked, at_s: float, lost: frozenset[int]) -> bool:
        """Whether somebody has worked on it since a moment, if its processes were lost anew."""
        run = self.runs[work.run_id]
        if work.trial in run.ended or run.is_over:
            return True
        attempt, reported_s = run.newest.get(work.trial, (0, 0.0))
        return reported_s > at_s and (attempt > work.attempt or not work.pids & lost)


def lost_steps(notes: Path) -> list[int]:
    """For each life of a trial behind the first: how many steps it has made again.

    Parameters
    ----------
    notes
        What the trial itself has written, a line for each step.
    """
    steps = [int(line) for line in notes.read_text().split()]
    return [before + 1 - after for before, after in pairwise(steps) if after != before + 1]
