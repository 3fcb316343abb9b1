"""What a run printed: where it lies in the files of its ranks, and its text."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

import msgspec

from jupyter_ddl.errors import TrialError
from jupyter_ddl.protocol.events import (
    AttemptFinished,
    AttemptStarted,
    CellExecuted,
    Event,
    FoldFinished,
    RankEnded,
    RankStarted,
)
from jupyter_ddl.store.log_space import read_span
from jupyter_ddl.store.printed import settled

__all__ = ["Piece", "Pieces", "find_pieces", "ranks_text", "trials_text"]


class Piece(msgspec.Struct, frozen=True):
    """Bytes ``start`` to ``end`` of a log; without ``end`` it may still grow."""

    log: str
    start: int
    end: int | None = None
    origin: str = ""
    """Which worker or cell it is from, for a line in front of it."""
    is_fold: bool = False
    """Of a fit: what a candidate printed on one fold."""


class _Attempt(msgspec.Struct):
    number: int
    ranks: dict[int, Piece] = {}
    is_group: bool = False
    has_folds: bool = False


Pieces: TypeAlias = dict[int, dict[int, Piece]]
"""trial → rank → piece, of each trial's last attempt; trials in order of starting.

In a fit a candidate's folds stand in the ranks' place.
"""


def find_pieces(events: Iterable[Event]) -> Pieces:
    """Where the output of each rank of each trial's last attempt lies."""
    found: dict[int, _Attempt] = {}
    for event in events:
        if isinstance(event, AttemptStarted):
            before = found.pop(event.trial, None)
            if before is not None and before.has_folds:  # a resumed candidate keeps what it had
                found[event.trial] = _Attempt(event.attempt, before.ranks, has_folds=True)
                continue
            piece = Piece(event.log, event.log_start, None, f"worker {event.worker}")
            found[event.trial] = _Attempt(event.attempt, {0: piece})
        elif isinstance(event, RankStarted):
            _begin_rank(found, event)
        elif isinstance(event, CellExecuted):
            found[event.number] = _Attempt(1, _cell_pieces(event), is_group=True)
        elif isinstance(event, FoldFinished):
            _add_fold(found, event)
        elif isinstance(event, RankEnded | AttemptFinished):
            _end(found, event)
    return {trial: attempt.ranks for trial, attempt in found.items()}


def _cell_pieces(event: CellExecuted) -> dict[int, Piece]:
    """A cell of a persistent group stands in a trial's place."""
    spans = zip(event.targets, event.log_starts, event.log_ends, strict=False)
    return {
        rank: Piece(f"rank-{rank}.log", start, end, f"cell {event.number}")
        for rank, start, end in spans
        if end > start
    }


def _begin_rank(found: dict[int, _Attempt], event: RankStarted) -> None:
    attempt = found.get(event.trial)
    if attempt is None or attempt.number != event.attempt or not attempt.is_group:
        # The start of the attempt told of one rank only, and not which.
        found.pop(event.trial, None)
        attempt = found[event.trial] = _Attempt(event.attempt, {}, is_group=True)
    origin = f"worker {event.worker}"
    attempt.ranks[event.rank] = Piece(event.log, event.log_start, None, origin)


def _add_fold(found: dict[int, _Attempt], event: FoldFinished) -> None:
    attempt = found.get(event.trial)
    if attempt is None or not event.log:
        return
    if not attempt.has_folds:  # the attempt's start told of one fold only, and not which
        attempt.ranks, attempt.has_folds = {}, True
    piece = Piece(event.log, event.log_start, event.log_end, is_fold=True)
    attempt.ranks[event.fold] = piece


def _end(found: dict[int, _Attempt], event: RankEnded | AttemptFinished) -> None:
    attempt = found.get(event.trial)
    if attempt is None or attempt.number != event.attempt:
        return
    if isinstance(event, AttemptFinished):
        if attempt.is_group or attempt.has_folds:
            return
        rank = 0
    else:
        rank = event.rank
    if rank in attempt.ranks:
        attempt.ranks[rank] = msgspec.structs.replace(attempt.ranks[rank], end=event.log_end)


def trials_text(pieces: Pieces, directory: Path) -> str:
    """The output of all trials, one after the other."""
    return "".join(ranks_text(ranks, directory) for ranks in pieces.values())


def ranks_text(ranks: dict[int, Piece], directory: Path, rank: int | None = None) -> str:
    """The output of one rank or fold, or of all with a line in front of each.

    Raises
    ------
    TrialError
        There is no such rank.
    """
    if rank is not None:
        if rank not in ranks:
            there = f"0 to {max(ranks)}" if ranks else "none yet"
            raise TrialError(f"there is no rank {rank} in its last round; ranks: {there}")
        return _read(directory, ranks[rank])
    if len(ranks) == 1:
        return "".join(_read(directory, piece) for piece in ranks.values())
    texts = []
    for number in sorted(ranks):
        piece = ranks[number]
        text = _read(directory, piece)
        if piece.is_fold and not text:
            continue  # most candidates of a large grid print nothing on any fold
        end = "" if not text or text.endswith("\n") else "\n"
        texts.append(f"{_heading(number, len(ranks), piece)}\n{text}{end}")
    return "".join(texts)


def _heading(number: int, n: int, piece: Piece) -> str:
    what = "fold" if piece.is_fold else "rank"
    return f"── {what} {number} of {n}" + (f", {piece.origin}" if piece.origin else "")


def _read(directory: Path, piece: Piece) -> str:
    path = directory / "logs" / piece.log
    if not piece.log or not path.exists():
        return ""
    return settled(read_span(path, piece.start, piece.end).decode(errors="replace"))
