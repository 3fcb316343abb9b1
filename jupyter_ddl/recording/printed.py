"""What a run has printed, as far as a recording has room for it.

Logs have no times of their own: the lines of an attempt are spread evenly over its duration.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from jupyter_ddl.events.messages import (
    AttemptFinished,
    AttemptStarted,
    Event,
    RankEnded,
    RankStarted,
)
from jupyter_ddl.recording.facts import Printed
from jupyter_ddl.views.escape import plain_lines

__all__ = ["MAX_PRINTED_BYTES", "printed_lines"]

MAX_PRINTED_BYTES = 400_000
"""Of one recording."""
_PIECE_BYTES = 8_000
"""Of one attempt or rank: the end of its output."""
_MAX_LINE = 500
_N_STEPS = 10


class _Piece(msgspec.Struct):
    """The output of one attempt, or of one rank."""

    trial: int
    rank: int | None
    log: str
    start: int
    began_s: float
    end: int | None = None
    ended_s: float | None = None


def printed_lines(events: Iterable[Event], folder: Path) -> tuple[list[Printed], tuple[str, ...]]:
    """Printed lines with times, and what was left out, in words.

    Parameters
    ----------
    folder : Path
        Where the log files lie; those that are missing have printed nothing.
    """
    pieces = _pieces(events)
    each = max(500, min(_PIECE_BYTES, MAX_PRINTED_BYTES // max(1, len(pieces))))
    found: list[Printed] = []
    left = MAX_PRINTED_BYTES
    is_cut = False
    for piece in pieces:
        text, cut = _tail(folder / Path(piece.log).name, piece.start, piece.end, min(each, left))
        is_cut |= cut
        left -= len(text.encode())
        found += _spread(piece, text)
    return found, ("the beginning of long outputs",) if is_cut else ()


def _pieces(events: Iterable[Event]) -> list[_Piece]:
    open_pieces: dict[tuple[int, int, int | None], _Piece] = {}
    found: list[_Piece] = []
    for event in events:
        if isinstance(event, RankStarted):
            # A group's own attempt has rank 0's log, which is told of here.
            group = open_pieces.pop((event.trial, event.attempt, None), None)
            if group is not None:
                found.remove(group)
        if isinstance(event, AttemptStarted | RankStarted):
            rank = event.rank if isinstance(event, RankStarted) else None
            piece = _Piece(event.trial, rank, event.log, event.log_start, event.at_s)
            open_pieces[event.trial, event.attempt, rank] = piece
            found.append(piece)
        elif isinstance(event, AttemptFinished | RankEnded):
            rank = event.rank if isinstance(event, RankEnded) else None
            ended = open_pieces.get((event.trial, event.attempt, rank))
            if ended is not None:
                ended.end, ended.ended_s = event.log_end, event.at_s
    return found


def _tail(path: Path, start: int, end: int | None, limit: int) -> tuple[str, bool]:
    """The end of a part of a file, and whether that is not all of it."""
    try:
        with path.open("rb") as file:
            stop = file.seek(0, 2) if end is None else end
            begin = max(start, stop - limit)
            file.seek(begin)
            text = file.read(max(0, stop - begin)).decode(errors="replace")
    except OSError:
        return "", False
    return (text.partition("\n")[2] if begin > start else text), begin > start


def _spread(piece: _Piece, text: str) -> Iterator[Printed]:
    lines = [_clean(line) for line in text.splitlines()]
    n_steps = min(_N_STEPS, len(lines))
    ended_s = piece.began_s if piece.ended_s is None else piece.ended_s
    for step in range(n_steps):
        part = lines[len(lines) * step // n_steps : len(lines) * (step + 1) // n_steps]
        at_s = piece.began_s + (ended_s - piece.began_s) * (step + 1) / n_steps
        yield Printed(at_s, piece.trial, tuple(part), piece.rank)


def _clean(line: str) -> str:
    """One line, its indentation kept."""
    shown = line.rpartition("\r")[2]
    return plain_lines(shown, _MAX_LINE).replace("\n", " ")
