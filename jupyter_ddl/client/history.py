"""Stopping a run or one of its trials, as the magic and the command line do it."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import msgspec

from jupyter_ddl.client.run import Run
from jupyter_ddl.client.session import session
from jupyter_ddl.errors import (
    ClusterError,
    ControllerError,
    JupyterDDLError,
    LedgerBusyError,
    RunNotFoundError,
)
from jupyter_ddl.ledger.file import LedgerWriter
from jupyter_ddl.ledger.reader import RunSummary, read_summary
from jupyter_ddl.nearest import did_you_mean
from jupyter_ddl.protocol.fit import FitSpec
from jupyter_ddl.protocol.replies import StatusResult
from jupyter_ddl.protocol.requests import GetStatus
from jupyter_ddl.store.connection import list_connections
from jupyter_ddl.store.paths import ledger_path, run_dir, runs_dir

__all__ = [
    "find_run",
    "list_runs",
    "list_with_state",
    "live_runs",
    "remove_run",
    "stop_run",
]


# Runs on disk: listed, read and removed without any controller.

log = logging.getLogger(__name__)

_STATUS_TIMEOUT_S = 5.0


def list_runs() -> list[RunSummary]:
    """Every run of this user, newest first; a run that can't be read is left out."""
    found = []
    for directory in runs_dir().iterdir():
        try:
            found.append(read_summary(directory / "ledger.ddl"))
        except JupyterDDLError:
            continue  # being created, or damaged: `%runs show ID` tells which
    return sorted(found, key=lambda summary: -summary.created_at_s)


def find_run(text: str) -> str:
    """The id of the run that ``text`` means: a whole id, a unique beginning, or ``last``.

    Raises
    ------
    RunNotFoundError
        No run, or several, are meant; the message names the nearest.
    """
    ids = [path.parent.name for path in runs_dir().glob("*/ledger.ddl")]
    if text in ids:
        return text
    if text == "last" and ids:
        return list_runs()[0].run_id
    meant = [run_id for run_id in ids if text and run_id.startswith(text)]
    if len(meant) == 1:
        return meant[0]
    if meant:
        raise RunNotFoundError(f"{text!r} may mean {', '.join(sorted(meant)[:5])}; give more of it")
    hint = did_you_mean(text, ids) or "; `%runs` lists them"
    raise RunNotFoundError(f"there is no run {text!r}{hint}", run_id=text)


def remove_run(run_id: str) -> Path:
    """Delete a run's directory: record, logs, checkpoints and values.

    Raises
    ------
    LedgerBusyError
        A controller drives it; stop it first.
    """
    try:
        LedgerWriter.open(ledger_path(run_id)).close()
    except LedgerBusyError:
        raise LedgerBusyError(
            f"run {run_id} is still active; `%runs stop {run_id}` first", run_id=run_id
        ) from None
    except JupyterDDLError:
        pass  # a damaged ledger may be removed all the same
    directory = run_dir(run_id)
    shutil.rmtree(directory)
    return directory


def live_runs() -> frozenset[str]:
    """Runs that some controller drives now; controllers that do not answer are skipped."""
    found: set[str] = set()
    for info in list_connections():
        try:
            answer = session().ask(info.name, GetStatus(), _STATUS_TIMEOUT_S)
        except ClusterError as error:
            log.warning("cluster %s was asked for its runs: %s", info.name, error)
            continue
        if isinstance(answer, StatusResult):
            found.update(answer.status.active_runs)
    return frozenset(found)


# The runs that a list shows, with what only a controller or a whole ledger knows.

_MAX_FOLDED = 10
"""Long unfinished runs whose whole ledger is read to tell how far they are."""


def list_with_state() -> list[tuple[RunSummary, bool]]:
    """Every run, newest first, and whether a controller drives it now."""
    summaries = list_runs()
    unfinished = [each for each in summaries if each.finished_at_s is None]
    live = live_runs() if unfinished else frozenset()
    unknown = [each for each in unfinished if each.counts is None][:_MAX_FOLDED]
    folded = {each.run_id: _with_progress(each) for each in unknown}
    return [(folded.get(each.run_id, each), each.run_id in live) for each in summaries]


def _with_progress(summary: RunSummary) -> RunSummary:
    from jupyter_ddl.client.run import Run

    try:
        snapshot = Run(summary.run_id).snapshot()
    except JupyterDDLError:
        return summary  # it was removed in this moment, or is damaged: `%runs show ID` tells
    best = snapshot.best
    return msgspec.structs.replace(
        summary,
        counts=snapshot.counts,
        best_trial=None if best is None else best.number,
        best_value=None if best is None else best.value,
        step=snapshot.last_step,
        round=snapshot.round,
    )


def stop_run(run: Run, *, trial: int | None = None, now: bool = False) -> str:
    """Stop a run, or one of its trials; returns a sentence about what happens now.

    Raises
    ------
    ControllerError
        No controller drives the run, or the one that does can't be asked.
    """
    if run.id not in live_runs():
        raise ControllerError(f"no controller drives run {run.id}: it is {run.state}")
    # The folds of one candidate report nothing that could be waited for.
    is_now = now or (trial is not None and isinstance(run.spec.verb, FitSpec))
    when = "at once" if is_now else "at the next report"
    if trial is None:
        run.cancel("now" if now else "next_report")
        return f"Run {run.id} stops {when}."
    run.stop_trial(trial, "now" if now else "next_report")
    return f"Trial {trial} of run {run.id} stops {when}."
