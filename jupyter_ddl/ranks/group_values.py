"""What a rank of a group sends back: its own values, plain and on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from jupyter_ddl.protocol.assignment import Assignment, TrialAssignment
from jupyter_ddl.protocol.events import ValueKept
from jupyter_ddl.protocol.space import ParamValue
from jupyter_ddl.ranks.training import Training
from jupyter_ddl.ranks.values import ValuesError, inline, save_values

__all__ = ["RankValues", "save_rank_values"]

_RESULT = "value"
"""Name of the cell's own value in a values file."""


class RankValues(msgspec.Struct, frozen=True):
    """Fields of the attempt's end."""

    values_file: str | None
    inline_value: ParamValue
    has_inline_value: bool


def save_rank_values(
    result: Any,
    brought: dict[str, Any],
    training: Training,
    trial: TrialAssignment,
    assignment: Assignment,
    emit: Callable[[ValueKept], None],
) -> RankValues:
    """Write the cell's value and the brought ones into this rank's own file.

    Called by all ranks, because sharded models are gathered.  The cell's value is a courtesy:
    when it cannot be pickled, it comes back as None, and the group tells why.

    Raises
    ------
    ValuesError
        A brought value cannot be pickled.
    OSError
        The file cannot be written.
    """
    has_inline_value, inline_value = inline(result)
    values = {name: training.unwrapped(value) for name, value in brought.items()}
    if has_inline_value:
        return RankValues(_save(values, trial, assignment), inline_value, True)
    plain = training.unwrapped(result)
    try:
        file = _save({**values, _RESULT: plain}, trial, assignment)
    except ValuesError as error:
        if error.fields.get("name") != _RESULT:
            raise
        emit(ValueKept(trial.trial, trial.attempt, error.message))
        return RankValues(_save(values, trial, assignment), None, True)
    return RankValues(file, None, False)


def _save(values: dict[str, Any], trial: TrialAssignment, assignment: Assignment) -> str | None:
    if not values:
        return None
    rank = assignment.place.rank if assignment.place else 0
    if rank and assignment.metric is not None:
        return None  # of a search, rank 0's file is kept or removed with the trial
    name = f"trial-{trial.trial}-a{trial.attempt}-r{rank}.pkl"
    save_values(values, Path(assignment.run_dir) / "values" / name)
    return name
