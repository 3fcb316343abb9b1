"""Figures and tables that the ranks of a run have shown, as a notebook shows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from jupyter_ddl.ledger.run_state import RunState
from jupyter_ddl.protocol.events import CellExecuted, Event
from jupyter_ddl.protocol.outputs import Bundle, read_bundle

__all__ = ["Output", "outputs_of_cells", "outputs_of_trials"]


class Output:
    """One thing that a rank has shown.  A notebook shows it as what it is.

    Attributes
    ----------
    trial : int
        Of a persistent group, the cell.
    rank : int
    at_s : float
        Unix seconds.
    path : Path
        Where it lies, as JSON.
    """

    def __init__(self, path: Path, trial: int, rank: int, at_s: float) -> None:
        self.path = path
        self.trial = trial
        self.rank = rank
        self.at_s = at_s
        self._bundle: Bundle | None = None

    @property
    def data(self) -> dict[str, Any]:
        """MIME type to content: text, base64 of bytes, or an object of JSON; empty: it is gone."""
        return self._read().data

    def _read(self) -> Bundle:
        if self._bundle is None:
            self._bundle = read_bundle(self.path) or Bundle({})
        return self._bundle

    def _repr_mimebundle_(
        self, include: Any = None, exclude: Any = None
    ) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        bundle = self._read()
        return bundle.data or {"text/plain": repr(self)}, bundle.metadata

    def __repr__(self) -> str:
        kinds = ", ".join(self.data) or "gone"
        return f"<Output of trial {self.trial}, rank {self.rank}: {kinds}>"


def outputs_of_trials(state: RunState, directory: Path, trial: int | None) -> list[Output]:
    """What trials show, by number.

    Parameters
    ----------
    directory : Path
        The run's.
    """
    chosen = sorted(state.outputs) if trial is None else [trial] if trial in state.outputs else []
    return [
        Output(directory / "outputs" / event.file, number, 0, event.at_s)
        for number in chosen
        for event in state.outputs[number].values()
    ]


def outputs_of_cells(events: Iterable[Event], directory: Path, cell: int | None) -> list[Output]:
    """The same of a persistent group's cells."""
    return [
        Output(directory / "outputs" / file, event.number, event.targets[0], event.at_s)
        for event in events
        if isinstance(event, CellExecuted) and cell in (None, event.number)
        for file in event.outputs
    ]
