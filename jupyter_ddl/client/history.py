"""Runs on disk: listed, read and removed without any controller."""

from __future__ import annotations

import difflib
import logging
import shutil
from pathlib import Path

from jupyter_ddl.client.session import session
from jupyter_ddl.controller.connection import list_connections
from jupyter_ddl.errors import ClusterError, JupyterDDLError, LedgerBusyError, RunNotFoundError
from jupyter_ddl.events.ledger import LedgerWriter
from jupyter_ddl.events.reader import RunSummary, read_summary
from jupyter_ddl.events.replies import StatusResult
from jupyter_ddl.spec.requests import GetStatus
from jupyter_ddl.store.paths import ledger_path, run_dir, runs_dir

__all__ = ["find_run", "list_runs", "live_runs", "remove_run"]

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
    near = difflib.get_close_matches(text, ids, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else "`%runs` lists them"
    raise RunNotFoundError(f"there is no run {text!r}; {hint}", run_id=text)


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
