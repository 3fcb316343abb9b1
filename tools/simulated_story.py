"""What is told of a simulated run: events that the reducer accepts, measurements, printed lines."""

from __future__ import annotations

from jupyter_ddl.ledger.reducer import fold
from jupyter_ddl.ledger.run_state import RunState
from jupyter_ddl.ledger.snapshots import with_totals
from jupyter_ddl.protocol.events import Event, RunFinished
from jupyter_ddl.protocol.telemetry import WorkerSample
from jupyter_ddl.recording.lines import Fact, Measured, Printed, time_of

__all__ = ["BEGAN_S", "Story"]

BEGAN_S = 1_790_000_000.0
"""Unix seconds of a simulated run's first event."""


class Story:
    """Facts in the order of their times; the state that follows from them so far."""

    def __init__(self) -> None:
        self.facts: list[Fact] = []
        self.state = RunState()
        self._now_s = BEGAN_S

    def tell(self, event: Event) -> None:
        """Add an event.

        Raises
        ------
        ValueError
            It comes before the one before, or no longer counts.
        """
        if isinstance(event, RunFinished):
            event = with_totals(self.state, event)
        n_late = self.state.n_late
        fold(self.state, event)
        if self.state.n_late > n_late:
            raise ValueError(f"{event} changes nothing")
        self._add(event)

    def measure(self, sample: WorkerSample) -> None:
        """Add what a worker measured."""
        self._add(Measured(sample))

    def say(self, at_s: float, trial: int, *lines: str, rank: int | None = None) -> None:
        """Add printed lines."""
        self._add(Printed(at_s, trial, lines, rank))

    def _add(self, fact: Fact) -> None:
        at_s = time_of(fact)
        if at_s < self._now_s:
            kind = type(fact).__name__
            raise ValueError(f"{kind} of {at_s:.3f} comes after what was told of {self._now_s:.3f}")
        self._now_s = at_s
        self.facts.append(fact)
