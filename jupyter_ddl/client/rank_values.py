"""What the ranks of a group sent home: each rank's own file of values, and its result."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

from jupyter_ddl.errors import TrialError
from jupyter_ddl.events.messages import RankEnded
from jupyter_ddl.events.run_state import RunState

__all__ = ["rank_result", "rank_results", "rank_values"]

_RESULT = "value"
"""Name of the cell's own value in a values file."""


def rank_values(state: RunState, directory: Path, trial: int, rank: int) -> dict[str, Any]:
    """The variables that a rank brought in the last round, its result included.

    Raises
    ------
    TrialError
        The trial has no such rank, or the rank did not come to its end.
    """
    ended = _ended(state, trial)
    if rank not in ended:
        known = f"ranks 0 to {max(ended)}" if ended else "no rank"
        raise TrialError(
            f"rank {rank} of trial {trial} brought nothing; {known} came to an end there"
        )
    return _read(directory, ended[rank])


def rank_results(state: RunState, directory: Path, trial: int) -> list[Any]:
    """What the cell's last expression was on each rank of the last round; None where it failed."""
    ended = _ended(state, trial)
    n_ranks = 1 + max(ended, default=-1)
    return [rank_result(ended.get(rank), directory) for rank in range(n_ranks)]


def rank_result(ended: RankEnded | None, directory: Path) -> Any:
    """One rank's result."""
    if ended is None or ended.outcome != "complete":
        return None
    if ended.has_inline_value:
        return ended.inline_value
    return _read(directory, ended).get(_RESULT)


def _ended(state: RunState, trial: int) -> dict[int, RankEnded]:
    group = state.ranks.get(trial)
    return {} if group is None else group.ended


def _read(directory: Path, ended: RankEnded) -> dict[str, Any]:
    if ended.values_file is None:
        return {}
    with (directory / "values" / ended.values_file).open("rb") as file:
        values: dict[str, Any] = pickle.load(file)
    return values
