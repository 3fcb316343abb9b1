"""Folds the cells of a persistent group: the last ones are kept, all are counted."""

from __future__ import annotations

from jupyter_ddl.events.messages import CellExecuted
from jupyter_ddl.events.run_state import RunState
from jupyter_ddl.events.snapshot import CellRow

__all__ = ["cell_executed"]

_MAX_SOURCE = 500
_MAX_MESSAGE = 200


def cell_executed(state: RunState, event: CellExecuted) -> None:
    """Keep what a view shows of a cell."""
    failure = event.failure
    state.cells.append(
        CellRow(
            number=event.number,
            source=_short(event.source.strip("\n"), _MAX_SOURCE),
            targets=event.targets,
            outcome=event.outcome,
            at_s=event.at_s,
            duration_s=event.duration_s,
            failure=""
            if failure is None
            else _short(f"{failure.type_name}: {failure.message}", _MAX_MESSAGE),
        )
    )


def _short(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
