"""Writes a run as a recording: a file that appears whole or not at all."""

from __future__ import annotations

import getpass
import gzip
import heapq
import io
import os
import re
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from jupyter_ddl import __version__
from jupyter_ddl.controller.telemetry_store import read_samples
from jupyter_ddl.errors import RecordingError
from jupyter_ddl.formats import format_counted
from jupyter_ddl.ledger.reader import read_ledger
from jupyter_ddl.ledger.reducer import fold_all
from jupyter_ddl.protocol.events import (
    AttemptFinished,
    AttemptStarted,
    Event,
    FoldFinished,
    RankEnded,
    RankStarted,
    Reported,
    RunSubmitted,
)
from jupyter_ddl.protocol.outputs import read_bundle
from jupyter_ddl.protocol.reading import converted
from jupyter_ddl.protocol.run import Provenance, RunSpec
from jupyter_ddl.recording.lines import (
    FORMAT,
    Displayed,
    Fact,
    Head,
    Measured,
    Origin,
    Printed,
    Recording,
    in_time,
    line_of,
    time_of,
)
from jupyter_ddl.recording.secrets import MASK, SecretMasker, has_scanner
from jupyter_ddl.store.atomic import write_whole
from jupyter_ddl.store.log_space import read_span
from jupyter_ddl.store.paths import home_dir, ledger_path, run_dir, runtime_path
from jupyter_ddl.store.printed import settled
from jupyter_ddl.views.answers import still_form
from jupyter_ddl.views.drawing import plain_lines

__all__ = [
    "MASK",
    "MAX_DISPLAYED_BYTES",
    "MAX_PRINTED_BYTES",
    "MAX_REPORTS",
    "Scrubber",
    "displayed_outputs",
    "head_of",
    "printed_lines",
    "record_run",
    "save_text",
    "write_recording",
]


# What a file that is given to others must not tell: secrets, names, folders.

_OUR_NAMES = frozenset(
    {"assignment_id", "device", "digest", "file", "filename", "host", "key", "log", "run_id"}
    | {"schema", "shown", "store", "type", "uuid", "values_file", "worker", "program_digest"}
)
"""Fields that no person writes: what looks random there is ours."""
_HOMES = re.compile(r"(?:/home|/Users)/[^/\s\"'<>:,]+|[A-Za-z]:\\Users\\[^\\\s\"'<>:,]+")


class Scrubber:
    """Takes out of text and facts what is nobody else's business.

    Parameters
    ----------
    environ : mapping, optional
        Where values of variables that sound like secrets are looked up.
    places : mapping of str to str, optional
        Words to replace wherever they stand alone, and by what; folders of this user, the user's
        and the host's name by default.
    """

    def __init__(
        self, environ: Mapping[str, str] | None = None, places: Mapping[str, str] | None = None
    ) -> None:
        self.secrets = SecretMasker(os.environ if environ is None else environ)
        self._chosen = _places() if places is None else dict(places)
        self._find_words()

    def _find_words(self) -> None:
        words = sorted(self._chosen, key=len, reverse=True)
        pattern = "|".join(rf"(?<![\w-]){re.escape(word)}(?![\w-])" for word in words)
        self._words = re.compile(pattern) if words else None

    def text(self, text: str) -> str:
        """The text without them."""
        text = self.secrets.text(text)
        if self._words is not None:
            text = self._words.sub(lambda found: self._chosen[found[0]], text)
        return _HOMES.sub("~", text)

    def fact(self, fact: Fact) -> Fact:
        """The fact without them, and without what only its own host can use."""
        if isinstance(fact, RunSubmitted):
            if fact.spec.folder not in ("", "/"):  # failures name it
                self._chosen = {**self._chosen, fact.spec.folder: "…"}
                self._find_words()
            fact = msgspec.structs.replace(fact, spec=_bare(fact.spec))
        elif isinstance(fact, Displayed) and fact.mime != "text/plain":
            return fact  # no text, and letters of base64 must stay what they are
        elif isinstance(fact, FoldFinished):
            fact = msgspec.structs.replace(fact, outcome=b"", file="")
        elif isinstance(fact, AttemptFinished):
            fact = msgspec.structs.replace(fact, values_file=None, result=b"")
        where = type(fact).__name__
        fields = self._walk(msgspec.to_builtins(fact, builtin_types=(bytes,)), where)
        return converted(fields, type(fact), builtin_types=(bytes,))

    def _walk(self, value: Any, where: str) -> Any:
        if isinstance(value, str):
            text = self.text(value)
            if where:
                self.secrets.doubt(text, where)
            return text
        if isinstance(value, dict):
            return {
                self.text(key): self._walk(item, "" if key in _OUR_NAMES else where)
                for key, item in value.items()
            }
        if isinstance(value, list | tuple):
            return [self._walk(item, where) for item in value]
        return value


def _bare(spec: RunSpec) -> RunSpec:
    """The spec without captured values, and without who, where and with what it was run."""
    program = msgspec.structs.replace(
        spec.program, payload=None, buffers=(), modules=(), sources={}
    )
    old = spec.provenance
    notebook = None if old.notebook is None else Path(old.notebook).name
    kept = Provenance(line=old.line, cell=old.cell, notebook=notebook, python=old.python)
    return msgspec.structs.replace(spec, program=program, provenance=kept, folder="")


def _places() -> dict[str, str]:
    found = {str(home_dir()): "…", str(runtime_path()): "…"}
    home = Path.home()
    if home != Path(home.anchor):
        found[str(home)] = "~"
    here = socket.gethostname()
    for name in {here, here.partition(".")[0]} - {"localhost", ""}:
        found[name] = "host"
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = ""
    # A word of everyday code is nobody's name.
    if len(user) > 3 and user not in ("root", "user", "test", "admin", "jovyan"):
        found[user] = "user"
    return found


# What a run has printed, as far as a recording has room for it.
#
# Logs have no times of their own: the lines of an attempt are spread evenly over its duration.

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


def printed_lines(
    events: Iterable[Event], folder: Path, clean: Callable[[str], str]
) -> tuple[list[Printed], tuple[str, ...]]:
    """Printed lines with times, and what was left out, in words.

    Parameters
    ----------
    folder : Path
        Where the log files lie; those that are missing have printed nothing.
    clean : callable
        Takes secrets out of a whole output: a key has many lines, and a line may be cut off later.
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
        found += _spread(piece, clean(settled(text)))
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
        stop = path.stat().st_size if end is None else end
        begin = max(start, stop - limit)
        text = read_span(path, begin, stop).decode(errors="replace")
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
    return plain_lines(line, _MAX_LINE).replace("\n", " ")


# What a run shows: pictures and text only, since a page of a recording is given to others.

MAX_DISPLAYED_BYTES = 700_000
"""Of one recording, as it is written."""
_ONE_BYTES = 300_000


def displayed_outputs(
    events: Iterable[Event], folder: Path
) -> tuple[list[Displayed], tuple[str, ...]]:
    """What trials show in the end, the best one's first, and what was left out, in words.

    Parameters
    ----------
    folder : Path
        Where the files lie.
    """
    state = fold_all(events)
    trials = sorted(state.outputs, key=lambda trial: (trial != state.best_number, trial))
    found: list[Displayed] = []
    left, n_left_out = MAX_DISPLAYED_BYTES, 0
    n_all = sum(map(len, state.outputs.values()))
    for event in (event for trial in trials for event in state.outputs[trial].values()):
        bundle = read_bundle(folder / event.file)
        if bundle is None:
            continue
        mime, content = still_form(bundle, _ONE_BYTES)
        if len(content) > left:
            n_left_out += 1
            continue
        left -= len(content)
        found.append(Displayed(event.at_s, event.trial, event.file, mime, content))
    found.sort(key=time_of)
    return found, (f"{n_left_out:,} of {n_all:,} figures and tables",) if n_left_out else ()


_N_DOUBTS = 5
MAX_REPORTS = 200_000
"""Of more reports, every second one is left out, until they fit."""


def record_run(run_id: str, *, strict: bool = False) -> Recording:
    """A run of this user as far as it has come, without secrets, names and folders.

    Parameters
    ----------
    strict : bool
        Refuse where something is left that looks random, and may be a secret of an unknown kind.

    Raises
    ------
    LedgerError
        There is no such run, or its ledger is damaged.
    RecordingError
        It is to be strict, and there are doubts.
    """
    events = list(read_ledger(ledger_path(run_id)))
    kept, left_out = _thinned(events)
    scrub = Scrubber()
    printed, cut = printed_lines(events, run_dir(run_id) / "logs", scrub.text)
    displayed, unshown = displayed_outputs(events, run_dir(run_id) / "outputs")
    measured = _measured(run_id)
    printed.sort(key=time_of)
    beside = (in_time(displayed), in_time(printed), in_time(measured))
    merged = heapq.merge(in_time(kept), *beside, key=lambda pair: pair[0])
    facts = [scrub.fact(fact) for _, fact in merged]
    head = head_of(facts, "recorded", (*left_out, *cut, *unshown))
    if strict:
        _refuse_doubts(run_id, scrub.secrets)
    masked, doubts = scrub.secrets.masked, scrub.secrets.doubts
    head = msgspec.structs.replace(head, masked=masked, n_doubts=len(doubts))
    return Recording(head, tuple(facts))


def _refuse_doubts(run_id: str, secrets: SecretMasker) -> None:
    if not has_scanner():
        raise RecordingError(
            f"run {run_id} is not written: --strict asks the patterns of detect-secrets, which is "
            f"not installed; `pip install 'jupyter_ddl[export]'`"
        )
    if doubts := secrets.doubts:
        more = f" and {len(doubts) - _N_DOUBTS} more" if len(doubts) > _N_DOUBTS else ""
        raise RecordingError(
            f"run {run_id} is not written: {format_counted(len(doubts), 'string')} may be a "
            f"secret: {'; '.join(doubts[:_N_DOUBTS])}{more}; look at them, and write it without "
            f"--strict if they are none"
        )


def head_of(facts: Iterable[Fact], origin: Origin, left_out: tuple[str, ...] = ()) -> Head:
    """The head that goes with these facts, of which one is ``RunSubmitted``."""
    spec = next(fact.spec for fact in facts if isinstance(fact, RunSubmitted))
    return Head(
        format=FORMAT,
        origin=origin,
        version=__version__,
        run_id=spec.run_id,
        verb=spec.verb.word,
        name=spec.name,
        line=spec.provenance.line,
        cell=spec.provenance.cell,
        left_out=left_out,
    )


def write_recording(recording: Recording, path: str | Path, *, overwrite: bool = False) -> int:
    """Write JSON lines, packed by gzip if the name ends in ``.gz``; returns the number of facts.

    Raises
    ------
    RecordingError
        The file is there already, or can't be written; says why.
    """
    path = Path(path).expanduser()
    text = "".join(f"{line}\n" for line in _lines_of(recording))
    data = text.encode()
    if path.suffix == ".gz":
        packed = io.BytesIO()
        # No time and no name inside: the same recording is the same file.
        with gzip.GzipFile(filename="", mode="wb", fileobj=packed, mtime=0) as file:
            file.write(data)
        data = packed.getvalue()
    save_text(data, path, overwrite=overwrite)
    return len(recording.facts)


def save_text(data: bytes, path: Path, *, overwrite: bool) -> None:
    """Make a file appear with its whole content.

    Raises
    ------
    RecordingError
        It is there already and ``overwrite`` is false, or it can't be written.
    """
    if path.is_dir():
        raise _refusal(path, "it is a directory; give the name of a file")
    if path.exists() and not overwrite:
        raise _refusal(path, "it exists already; give another name, or --overwrite")
    try:
        write_whole(path, data, mode=0o666)  # to be handed on: as the umask has it
    except OSError as error:
        raise _refusal(path, f"{error.strerror}; give a place that you can write to") from None


def _lines_of(recording: Recording) -> Iterator[str]:
    yield line_of(recording.head)
    for fact in recording.facts:
        yield line_of(fact)


def _thinned(events: list[Event]) -> tuple[list[Event], tuple[str, ...]]:
    """The events with at most :data:`MAX_REPORTS` reports; the last of each trial stays."""
    n_reports = sum(type(event) is Reported for event in events)
    stride = 1
    while n_reports / stride > MAX_REPORTS:
        stride *= 2
    if stride == 1:
        return events, ()
    totals = Counter((e.trial, e.attempt, e.rank) for e in events if isinstance(e, Reported))
    seen: Counter[tuple[int, int, int]] = Counter()
    kept: list[Event] = []
    for event in events:
        if isinstance(event, Reported):
            key = (event.trial, event.attempt, event.rank)
            seen[key] += 1
            if seen[key] % stride and seen[key] < totals[key]:
                continue
        kept.append(event)
    return kept, (f"{len(events) - len(kept):,} of {n_reports:,} reports",)


def _measured(run_id: str) -> list[Fact]:
    """The samples that the controller has kept; none where it has kept none."""
    return sorted(map(Measured, read_samples(run_id)), key=time_of)


def _refusal(path: Path, what: str) -> RecordingError:
    return RecordingError(f"writing {path} failed: {what}", path=str(path))
