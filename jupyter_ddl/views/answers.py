"""Carries out what the view in a cell asks for, on a thread that may wait."""

from __future__ import annotations

import base64
import logging
import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from jupyter_ddl.client.session import Session
from jupyter_ddl.client.submit import go_on_with
from jupyter_ddl.errors import JupyterDDLError, ProtocolError, RunNotFoundError, TrialError
from jupyter_ddl.formats import shortened
from jupyter_ddl.ledger.outputs import output_rows
from jupyter_ddl.ledger.reader import LedgerReader
from jupyter_ddl.ledger.reducer import fold
from jupyter_ddl.ledger.run_state import RankGroupState, RunState, TrialState
from jupyter_ddl.plotting.chart import Chart
from jupyter_ddl.plotting.pipeline import pipeline_chart
from jupyter_ddl.plotting.staleness import staleness_chart
from jupyter_ddl.plotting.svg import to_svg
from jupyter_ddl.protocol import requests as down
from jupyter_ddl.protocol import view_messages as say
from jupyter_ddl.protocol.outputs import Bundle, read_bundle
from jupyter_ddl.protocol.replies import TelemetryResult
from jupyter_ddl.protocol.snapshot import PIPELINE, STALENESS, OutputRow
from jupyter_ddl.protocol.telemetry import EncodedTelemetry
from jupyter_ddl.protocol.view_messages import (
    GetColumns,
    GetLog,
    GetOutput,
    GetStacks,
    LogPart,
    OutputPart,
    StacksPart,
)
from jupyter_ddl.store.log_space import read_span
from jupyter_ddl.store.paths import ledger_path, run_dir
from jupyter_ddl.store.printed import settled
from jupyter_ddl.views.analysis import analysis_of
from jupyter_ddl.views.channel import Answer, Columns
from jupyter_ddl.views.columns import columns_part
from jupyter_ddl.views.drawing import plain_lines
from jupyter_ddl.views.stacks import stacks_part

__all__ = [
    "MAX_LINES",
    "MAX_LOG_BYTES",
    "RunRequests",
    "log_part",
    "output_part",
    "read_of",
    "still_form",
    "stop_of",
]


# What a view asks for beyond the snapshot: its trials as columns, the end of a log.
#
# Used by both carriers, on a thread that may wait for the disk.

MAX_LINES = 500
MAX_LOG_BYTES = 64_000
"""Of one answer, as JSON."""
_MAX_LINE = 4096
_SCAN_BYTES = 4 << 20
"""How far back a filter looks; the whole log stays on disk."""
_TAIL_BYTES = 512 << 10
MAX_OUTPUT_BYTES = 1_000_000
PICTURES = ("image/png", "image/jpeg", "image/gif")


def read_of(
    state: RunState, ask: GetColumns | GetLog | GetOutput | GetStacks
) -> Columns | LogPart | OutputPart | StacksPart:
    """The answer to what only the run's record is needed for.  Raises as :func:`log_part` does."""
    if isinstance(ask, GetStacks):
        return stacks_part(state, run_dir(ask.run_id), ask)
    if isinstance(ask, GetColumns):
        return Columns(*columns_part(state, ask))
    if isinstance(ask, GetOutput):
        return output_part(state, run_dir(ask.run_id), ask)
    return log_part(state, run_dir(ask.run_id), ask)


def stop_of(ask: say.StopRun | say.StopTrial) -> tuple[down.Body, say.Done]:
    """What the controller is told to stop, and the answer once it was told."""
    if isinstance(ask, say.StopRun):
        return down.StopRunRequest(ask.run_id, ask.how), say.Done(ask.id, _STOP_TEXTS[ask.how])
    told = say.Done(ask.id, f"trial {ask.trial} is asked to stop")
    return down.StopTrialRequest(ask.run_id, ask.trial), told


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
        outputs=_outputs(state, ask),
    )


def _outputs(state: RunState, ask: GetLog) -> tuple[OutputRow, ...]:
    if ask.trial is None and not ask.rank:
        return output_rows(state)
    shown = {} if ask.trial is None else state.outputs.get(ask.trial, {})
    return tuple(OutputRow(event.trial, event.file, event.at_s) for event in shown.values())


def output_part(state: RunState, directory: Path, ask: GetOutput) -> OutputPart:
    """What a trial shows, as a picture or as text.

    Raises
    ------
    TrialError
        It shows nothing of that name (any more).
    """
    ranks = state.ranks.get(ask.trial)
    if ask.file in _CHARTS and ranks is not None:
        return _chart_part(ask, _CHARTS[ask.file](ranks))
    known = ask.file in state.outputs.get(ask.trial, {})
    bundle = read_bundle(directory / "outputs" / ask.file) if known else None
    if bundle is None:
        raise TrialError(f"trial {ask.trial} shows {ask.file!r} no more", trial=ask.trial)
    mime, content = still_form(bundle, MAX_OUTPUT_BYTES)
    return OutputPart(ask.id, ask.run_id, ask.file, mime, content)


_CHARTS: dict[str, Callable[[RankGroupState], Chart]] = {
    PIPELINE: lambda ranks: pipeline_chart(ranks.pipeline),
    STALENESS: lambda ranks: staleness_chart(ranks.staleness.values()),
}


def _chart_part(ask: GetOutput, chart: Chart) -> OutputPart:
    content = base64.b64encode(to_svg(chart).encode()).decode()
    alt = ". ".join(filter(None, (chart.title, chart.text, chart.note)))
    return OutputPart(ask.id, ask.run_id, ask.file, "image/svg+xml", content, alt)


def still_form(bundle: Bundle, limit: int) -> tuple[str, str]:
    """A picture or text in place of an output: whatever a page does with it, no script runs.

    Parameters
    ----------
    limit : int
        Longest content in characters; a picture that is larger gives way to text.
    """
    for mime in PICTURES:
        content = bundle.data.get(mime)
        if isinstance(content, str) and len(content) <= limit:
            return mime, "".join(content.split())
    large = any(mime in bundle.data for mime in PICTURES)
    note = "\n(a picture that is too large for here: run.show_outputs())" if large else ""
    text = plain_lines(bundle.text, min(limit, _MAX_LINE * 4))
    return "text/plain", text + note


class _Piece(NamedTuple):
    """A part of a log; without an end it may still grow."""

    log: str
    start: int = 0
    end: int | None = None
    heading: str = ""


def _pieces(state: RunState, ask: GetLog) -> list[_Piece]:
    """What is asked for, the newest first; empty for the whole run."""
    verb = None if state.spec is None else state.spec.verb
    is_group = verb is not None and verb.can.has_ranks
    if ask.trial is None and not (is_group and ask.rank is not None):
        return []
    number = 0 if ask.trial is None else ask.trial
    trial = state.trials.get(number)
    if trial is None:
        raise TrialError(f"run {ask.run_id} has no trial {number}", trial=number)
    group = state.ranks.get(number)
    if group is None or not group.started:
        is_fed = verb is not None and verb.is_fed
        return _pieces_of_fit(state, trial) if is_fed else _pieces_of_one(trial)
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
        size = path.stat().st_size
        stop = size if end is None else min(end, size)
        begin = max(start, stop - (_SCAN_BYTES if contains else _TAIL_BYTES))
        data = read_span(path, begin, stop)
    except OSError:
        return [], 0
    if begin > start:
        # Without the rest of a line, unless there is nothing else: a bar, or a line without an end.
        data = data.partition(b"\n")[2] or "…".encode() + data
    lines = settled(data.decode(errors="replace")).split("\n")
    if not lines[-1]:
        del lines[-1]
    if contains:
        wanted = contains.casefold()
        lines = [line for line in lines if wanted in line.casefold()]
    return [_clean(line) for line in lines[-n_lines:]], size


def _clean(text: str) -> str:
    """One line, its indentation kept."""
    return plain_lines(shortened(text, _MAX_LINE), 4 * _MAX_LINE).replace("\n", " ")


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


log = logging.getLogger(__name__)

_MAX_WAITING = 32
_TIMEOUT_S = 10.0
_TELEMETRY_S = 1.0
_STOP_TEXTS = {
    "next_report": "stopping at the next report",
    "now": "stopping now",
    "epoch": "ending after this epoch",
    "keep_best": "finishing with the best trial",
}


class RunRequests:
    """Answers for one run, in order, on a thread of its own until :meth:`close`.

    Parameters
    ----------
    answer : callable
        Gets one answer per request that has one.
    show : callable, optional
        Gets the telemetry of the run about once a second.
    """

    def __init__(
        self,
        session: Session,
        cluster: str,
        run_id: str,
        answer: Callable[[Answer], None],
        show: Callable[[EncodedTelemetry], None] | None = None,
    ) -> None:
        self._session = session
        self._cluster = cluster
        self._run_id = run_id
        self._answer = answer
        self._show = show
        self._reader: LedgerReader | None = None
        self._state = RunState()
        self._queue: queue.Queue[say.FromBrowser | None] = queue.Queue(_MAX_WAITING)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"ddl-view-{run_id}", daemon=True)
        self._thread.start()

    def put(self, body: say.FromBrowser) -> bool:
        """Hand in a request; False when too many wait already."""
        try:
            self._queue.put_nowait(body)
        except queue.Full:
            return False
        return True

    def run_ended(self) -> None:
        """There is no telemetry of it any more."""
        self._ended.set()

    def close(self) -> None:
        """What waits is not answered any more.  Does not wait for the thread."""
        self._ended.set()
        self._show = None
        while True:
            try:
                self._queue.put_nowait(None)
                return
            except queue.Full:
                self._queue.get_nowait()

    def _run(self) -> None:
        try:
            while True:
                try:
                    body = self._queue.get(timeout=_TELEMETRY_S)
                except queue.Empty:
                    self._measure()
                    continue
                if body is None:
                    return
                self._answer(self._answered(body))
        finally:
            if self._reader is not None:
                self._reader.close()

    def _answered(self, body: say.FromBrowser) -> Answer:
        number = getattr(body, "id", 0)
        try:
            if getattr(body, "run_id", self._run_id) != self._run_id:
                raise ProtocolError(f"this view shows run {self._run_id} and no other")
            return self._carry_out(body)
        except JupyterDDLError as error:
            return say.Denied(number, error.code, error.message)
        except Exception:
            log.exception("a request of the view of run %s failed", self._run_id)
            return say.Denied(number, "DDL-0000", "this failed; the kernel's log has more")

    def _carry_out(self, body: say.FromBrowser) -> Answer:
        match body:
            case say.StopRun() | say.StopTrial():
                request, told = stop_of(body)
                self._ask(request)
                return told
            case say.GetColumns() | say.GetLog() | say.GetOutput() | say.GetStacks():
                return read_of(self._folded(), body)
            case say.GetImportance() | say.GetCurves() | say.GetTrial() | say.GetHistory():
                return analysis_of(self._folded(), body)()
            case say.ResumeRun():
                return say.Done(body.id, go_on_with(self._run_id))
            case _:
                raise ProtocolError(f"the view in a cell can't ask for {type(body).__name__}")

    def _ask(self, body: down.Body) -> None:
        try:
            self._session.ask_controller_of(self._cluster, body)
        except RunNotFoundError:
            if self._folded().end is None:
                raise  # otherwise it ended in this very moment

    def _folded(self) -> RunState:
        if self._reader is None:
            self._reader = LedgerReader(ledger_path(self._run_id))
        for event in self._reader.poll():
            fold(self._state, event)
        return self._state

    def _measure(self) -> None:
        show = self._show
        if show is None or self._ended.is_set():
            return
        try:
            result = self._session.ask(self._cluster, down.GetTelemetry(self._run_id), _TIMEOUT_S)
        except JupyterDDLError as error:
            log.debug("no telemetry of run %s: %s", self._run_id, error.message)
            return
        if isinstance(result, TelemetryResult):
            show(result.telemetry)
