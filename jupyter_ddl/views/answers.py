"""What a view asks for beyond the snapshot: a page of trials, the end of a log.

Used by both carriers, on a thread that may wait for the disk.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from jupyter_ddl.errors import TrialError
from jupyter_ddl.events.fold_snapshot import trial_rows
from jupyter_ddl.events.run_state import RunState, TrialState
from jupyter_ddl.spec.run import DdpSpec, FitSpec
from jupyter_ddl.views.escape import plain_lines
from jupyter_ddl.views.messages import GetLog, GetTrials, LogPart, TrialPage

__all__ = ["MAX_LINES", "MAX_LOG_BYTES", "MAX_ROWS", "log_part", "trial_page"]

MAX_ROWS = 100
MAX_LINES = 500
MAX_LOG_BYTES = 64_000
"""Of one answer, as JSON."""
_MAX_LINE = 4096
_SCAN_BYTES = 4 << 20
"""How far back a filter looks; the whole log stays on disk."""
_TAIL_BYTES = 512 << 10
_PAGE_BYTES = 48_000


def trial_page(state: RunState, ask: GetTrials, now_s: float) -> TrialPage:
    """Some trials of a run, sorted and filtered among all of them.

    Parameters
    ----------
    state : RunState
        Not changed; must not change meanwhile.
    now_s : float
        Unix seconds, for the age of running trials.
    """
    matching = [t for t in state.trials.values() if _matches(t, ask.contains)]
    key = _key(ask.sort)
    known = [trial for trial in matching if key(trial) is not None]
    unknown = [trial for trial in matching if key(trial) is None]
    known.sort(key=lambda trial: (key(trial), trial.number), reverse=ask.descending)
    # What has no value stands at the end in either direction.
    ordered = [trial.number for trial in (*known, *unknown)]
    offset = max(0, ask.offset)
    shown = ordered[offset : offset + max(1, min(ask.limit, MAX_ROWS))]
    rows = trial_rows(state, shown, now_s)
    while len(rows) > 1 and len(msgspec.json.encode(rows)) > _PAGE_BYTES:
        rows = rows[: len(rows) // 2]
    return TrialPage(id=ask.id, run_id=ask.run_id, rows=rows, n_matching=len(matching))


def log_part(state: RunState, directory: Path, ask: GetLog) -> LogPart:
    """The newest lines that a trial, a rank or the whole run has printed.

    Parameters
    ----------
    directory : Path
        The run's.

    Raises
    ------
    TrialError
        There is no such trial or rank.
    """
    pieces = _pieces(state, ask)
    if not pieces and ask.trial is None and ask.rank is None:
        pieces = [_Piece(name) for name in _newest(directory / "logs")]
    left = max(1, min(ask.n_lines, MAX_LINES))
    lines: list[str] = []
    sizes: dict[str, int] = {}
    for piece in pieces:
        path = directory / "logs" / piece.log
        found, sizes[piece.log] = _read(path, piece.start, piece.end, left, ask.contains)
        left -= len(found)
        heading = [piece.heading] if found and piece.heading else []
        lines = [*heading, *found, *lines]
        if left <= 0:
            break
    logs = directory / "logs"
    return LogPart(
        id=ask.id,
        run_id=ask.run_id,
        lines=_bounded(lines),
        n_bytes=sum(sizes.values()),
        path=str(logs / pieces[0].log if len(pieces) == 1 else logs),
    )


_SORTS: dict[str, Callable[[TrialState], Any]] = {
    "number": lambda trial: trial.number,
    "state": lambda trial: trial.state,
    "value": lambda trial: _value(trial),
    "duration_s": lambda trial: trial.duration_s,
    "worker": lambda trial: trial.worker or None,
    "step": lambda trial: trial.step,
}


def _key(sort: str) -> Callable[[TrialState], Any]:
    return _SORTS.get(sort) or (lambda trial: _comparable(trial.params.get(sort)))


def _comparable(value: Any) -> tuple[int, float, str] | None:
    """Parameters of one name may be numbers in one trial and texts in another."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, bool | int | float):
        return (
            (0, float(value), "")
            if abs(value) < 1e300
            else (0, (1e300 if value > 0 else -1e300), "")
        )
    return (1, 0.0, str(value))


def _value(trial: TrialState) -> float | None:
    """What a trial had when it was cancelled, or when an attempt was lost, is no result."""
    value = trial.objective if trial.value is None else trial.value
    if value is None or not math.isfinite(value):
        return None
    return value if trial.state in ("complete", "pruned", "running") else None


def _matches(trial: TrialState, contains: str) -> bool:
    if not contains:
        return True
    wanted = contains.casefold()
    return any(wanted in text.casefold() for text in _texts(trial))


def _texts(trial: TrialState) -> Iterable[str]:
    yield trial.state
    yield trial.worker
    yield f"#{trial.number}"
    for name, value in trial.params.items():
        yield f"{name}={value}"


class _Piece(NamedTuple):
    """A part of a log; without an end it may still grow."""

    log: str
    start: int = 0
    end: int | None = None
    heading: str = ""


def _pieces(state: RunState, ask: GetLog) -> list[_Piece]:
    """What is asked for, the newest first; empty for the whole run."""
    verb = None if state.spec is None else state.spec.verb
    is_ddp, is_fit = isinstance(verb, DdpSpec), isinstance(verb, FitSpec)
    if ask.trial is None and not (is_ddp and ask.rank is not None):
        return []
    number = 0 if ask.trial is None else ask.trial
    trial = state.trials.get(number)
    if trial is None:
        raise TrialError(f"run {ask.run_id} has no trial {number}", trial=number)
    group = state.ranks.get(number)
    if group is None or not group.started:
        return _pieces_of_fit(state, trial) if is_fit else _pieces_of_one(trial)
    ranks = sorted(group.started) if ask.rank is None else [ask.rank]
    found = []
    for rank in ranks:
        started = group.started.get(rank)
        if started is None:
            there = ", ".join(map(str, sorted(group.started)))
            raise TrialError(
                f"run {ask.run_id} has no rank {rank}; there are {there}", trial=number
            )
        ended = group.ended.get(rank)
        end = None if ended is None else ended.log_end
        found.append(_Piece(started.log, started.log_start, end))
    return found


def _pieces_of_one(trial: TrialState) -> list[_Piece]:
    return [_Piece(trial.log, trial.log_start or 0, trial.log_end)] if trial.log else []


def _pieces_of_fit(state: RunState, trial: TrialState) -> list[_Piece]:
    """The folds of a candidate that have printed something; its first one while that runs."""
    spans = state.fold_logs.get(trial.number, {})
    if not spans and trial.state == "running" and trial.step is None:
        return _pieces_of_one(trial)
    return [_Piece(*spans[fold], f"── fold {fold}") for fold in sorted(spans, reverse=True)]


def _newest(folder: Path) -> list[str]:
    """Log files, the one written to last first."""
    try:
        found = [(path.stat().st_mtime, path) for path in folder.iterdir() if path.is_file()]
    except OSError:
        return []
    return [path.name for _, path in sorted(found, reverse=True)]


def _read(
    path: Path, start: int, end: int | None, n_lines: int, contains: str
) -> tuple[list[str], int]:
    """The last matching lines between two places of a file, and the file's size."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            stop = size if end is None else min(end, size)
            reach = _SCAN_BYTES if contains else _TAIL_BYTES
            begin = max(start, stop - reach)
            file.seek(begin)
            data = file.read(max(0, stop - begin))
    except OSError:
        return [], 0
    raw = data.split(b"\n")
    if begin > start:
        del raw[0]  # the rest of a line
    if raw and not raw[-1]:
        del raw[-1]
    if contains:
        wanted = contains.casefold()
        raw = [line for line in raw if wanted in line.decode(errors="replace").casefold()]
    # A bar that redraws itself ends in what it showed last.
    texts = (line.rstrip(b"\r").rpartition(b"\r")[2][: 4 * _MAX_LINE] for line in raw[-n_lines:])
    return [_clean(text.decode(errors="replace")) for text in texts], size


def _clean(text: str) -> str:
    """One line, its indentation kept."""
    cut = text if len(text) <= _MAX_LINE else text[: _MAX_LINE - 1] + "…"
    return plain_lines(cut, 4 * _MAX_LINE).replace("\n", " ")


def _bounded(lines: list[str]) -> tuple[str, ...]:
    """The last ones that fit."""
    left = MAX_LOG_BYTES
    kept: list[str] = []
    for line in reversed(lines):
        left -= len(msgspec.json.encode(line)) + 1
        if left < 0:
            break
        kept.append(line)
    return tuple(reversed(kept))
