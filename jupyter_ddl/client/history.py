"""Runs on disk: listed, removed, repaired; and stopping a run or one of its trials."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import msgspec

from jupyter_ddl.client.copies import is_copy, reach
from jupyter_ddl.client.run import Run
from jupyter_ddl.client.run_names import read_lines
from jupyter_ddl.client.session import session
from jupyter_ddl.errors import (
    ClusterError,
    ControllerError,
    JupyterDDLError,
    RunNotFoundError,
)
from jupyter_ddl.formats import format_counted
from jupyter_ddl.ledger.reader import MAX_FOLDED, LedgerReader, read_run_line, with_progress
from jupyter_ddl.ledger.reducer import fold_all
from jupyter_ddl.ledger.removal import remove_directory
from jupyter_ddl.ledger.repair import repair_ledger
from jupyter_ddl.protocol.mirroring import RemoveRun
from jupyter_ddl.protocol.replies import StatusResult
from jupyter_ddl.protocol.requests import GetStatus
from jupyter_ddl.protocol.snapshot import RunLine
from jupyter_ddl.store.connection import list_connections, read_connection
from jupyter_ddl.store.paths import ledger_path, run_dir

__all__ = [
    "list_runs",
    "live_runs",
    "remove_run",
    "repair_run",
    "stop_run",
]


# Runs on disk: listed, read and removed without any controller.

log = logging.getLogger(__name__)

_STATUS_TIMEOUT_S = 5.0


def list_runs() -> list[RunLine]:
    """Every run of this user, newest first; damaged ones are marked as such."""
    lines = read_lines()
    unfinished = [each for each in lines if each.finished_at_s is None]
    live = live_runs() if unfinished else frozenset()
    unknown = [each.run_id for each in unfinished if each.n_finished is None][:MAX_FOLDED]
    return [
        msgspec.structs.replace(
            _folded(each) if each.run_id in unknown else each, live=each.run_id in live
        )
        for each in lines
    ]


def _folded(line: RunLine) -> RunLine:
    try:
        with LedgerReader(ledger_path(line.run_id), stops_at_damage=True) as reader:
            folded = with_progress(line, fold_all(reader.poll()))
            return msgspec.structs.replace(folded, is_damaged=reader.damage is not None)
    except JupyterDDLError:
        return line  # it was removed in this moment, or its beginning is damaged


def remove_run(run_id: str, on_notice: Callable[[str], None] = log.warning) -> Path:
    """Delete a run's directory: record, logs, checkpoints and values.

    That of a run in a cluster elsewhere is deleted there as well, or its copy would come again.

    Parameters
    ----------
    on_notice : callable
        Gets a line if that cluster can't be asked.

    Raises
    ------
    LedgerBusyError
        A controller drives it; stop it first.
    """
    _remove_elsewhere(run_id, on_notice)
    directory = run_dir(run_id)
    remove_directory(directory)
    return directory


def _remove_elsewhere(run_id: str, on_notice: Callable[[str], None]) -> None:
    """Delete the original of a copy."""
    if not is_copy(run_id):
        return
    try:
        cluster = read_run_line(ledger_path(run_id)).cluster
    except JupyterDDLError:
        return  # whose it was is not known
    troubles = reach(cluster)
    try:
        if read_connection(cluster) is not None:
            session().ask(cluster, RemoveRun(run_id))
    except RunNotFoundError:
        return
    except ControllerError as error:
        troubles.append(error.message)
    if troubles:
        on_notice(
            f"run {run_id} is in cluster {cluster} as well, which can't be asked "
            f"({'; '.join(troubles)}): if `%runs` shows it again, delete it again then"
        )


def repair_run(run_id: str) -> str:
    """Keep what stands before damage in a run's record; a sentence about what came of it.

    Raises
    ------
    LedgerBusyError
        A controller drives it.
    LedgerError
        Its beginning is lost, and with it what was to be run.
    """
    repaired = repair_ledger(ledger_path(run_id))
    if repaired is None:
        return f"The record of run {run_id} is not damaged."
    return (
        f"Run {run_id} is repaired: {format_counted(repaired.n_kept, 'record')} kept, "
        f"{repaired.lost} lost. The damaged file lies in {repaired.copy}. `%runs show {run_id}` "
        f"tells where the run stands; unless it is over, `%runs attach {run_id}` goes on with it."
    )


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
    is_now = now or (trial is not None and run.spec.verb.is_fed)
    when = "at once" if is_now else "at the next report"
    if trial is None:
        run.cancel("now" if now else "next_report")
        return f"Run {run.id} stops {when}."
    run.stop_trial(trial, "now" if now else "next_report")
    return f"Trial {trial} of run {run.id} stops {when}."
