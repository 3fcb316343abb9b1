"""What the trials of a run show, as far as it is kept: folded from events, bounded in bytes."""

from __future__ import annotations

from heapq import nlargest

from jupyter_ddl.formats import format_bytes
from jupyter_ddl.ledger.run_state import RunState
from jupyter_ddl.protocol.events import OutputShown
from jupyter_ddl.protocol.outputs import MAX_RUN_BYTES
from jupyter_ddl.protocol.snapshot import OutputRow

__all__ = ["N_SHOWN", "forget_outputs", "output_rows", "output_shown"]

N_SHOWN = 10
"""Most outputs that a view shows by itself."""


def output_shown(state: RunState, event: OutputShown) -> None:
    """Take in what a trial shows now, and forget the oldest outputs when it is too much."""
    before = state.outputs.pop(event.trial, {})
    known = {**before, event.file: event}
    now = {file: known[file] for file in event.shown if file in known}
    state.outputs[event.trial] = now  # the one that has shown something last stands last
    state.output_bytes += _size(now) - _size(before)
    state.unkept += [file for file in before if file not in now]
    for trial in _oldest_first(state):
        if state.output_bytes <= MAX_RUN_BYTES:
            return
        if not state.has_forgotten_outputs:
            state.has_forgotten_outputs = True
            limit = format_bytes(MAX_RUN_BYTES)
            state.notices.append(
                f"figures and tables of its trials take more than {limit}: the oldest are dropped"
            )
        forget_outputs(state, trial)


def forget_outputs(state: RunState, trial: int) -> None:
    """A trial shows nothing any more; the files are nobody's."""
    if trial not in state.outputs:
        return
    gone = state.outputs.pop(trial)
    state.output_bytes -= _size(gone)
    state.unkept += gone


def output_rows(state: RunState) -> tuple[OutputRow, ...]:
    """What a view shows by itself: of trials that are judged the best one's, else the newest."""
    can = None if state.spec is None else state.spec.verb.can
    chosen = list(state.outputs)
    if can is not None and can.has_objective:
        chosen = [state.best_number] if state.best_number in state.outputs else []
    rows = [
        OutputRow(trial, event.file, event.at_s)
        for trial in nlargest(N_SHOWN, chosen)
        for event in reversed(state.outputs[trial].values())
    ]
    return tuple(reversed(rows[:N_SHOWN]))


def _oldest_first(state: RunState) -> list[int]:
    trials = list(state.outputs)[:-1]
    return sorted(trials, key=lambda trial: trial == state.best_number)


def _size(outputs: dict[str, OutputShown]) -> int:
    return sum(event.size_bytes for event in outputs.values())
