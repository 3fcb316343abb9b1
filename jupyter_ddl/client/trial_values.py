"""What trials sent home: the values that they brought, and a map's results."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jupyter_ddl.events.messages import AttemptFinished, Event
from jupyter_ddl.events.run_state import RunState

__all__ = ["map_results", "trial_values"]


def trial_values(state: RunState, directory: Path, number: int) -> dict[str, Any]:
    """The variables that a trial brought; empty without any.

    Parameters
    ----------
    directory : Path
        The run's.
    """
    name = state.values_file(number)
    if name is None:
        return {}
    with (directory / "values" / name).open("rb") as file:
        values: dict[str, Any] = pickle.load(file)
    return values


def map_results(state: RunState, directory: Path, events: Sequence[Event]) -> list[Any]:
    """What the cell's last expression was for each element; None where it failed."""
    inline = _inline_values(events)
    return [
        inline[number] if number in inline else _result(state, directory, number)
        for number in range(state.n_trials)
    ]


def _result(state: RunState, directory: Path, number: int) -> Any:
    trial = state.trials.get(number)
    if trial is None or trial.state != "complete" or trial.values_file is None:
        return None
    return trial_values(state, directory, number).get("value")


def _inline_values(events: Sequence[Event]) -> dict[int, Any]:
    return {
        event.trial: event.inline_value
        for event in events
        if isinstance(event, AttemptFinished)
        and event.outcome == "complete"
        and event.has_inline_value
    }
