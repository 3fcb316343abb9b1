"""Removes the directory of a run that nobody drives."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from jupyter_ddl.errors import JupyterDDLError, LedgerBusyError, RunNotFoundError
from jupyter_ddl.ledger.reader import read_run_line
from jupyter_ddl.ledger.writer import LedgerWriter
from jupyter_ddl.store.paths import LEDGER

__all__ = ["remove_directory"]

_LET_GO_S = 10.0
"""How long whoever wrote a run's last record may take to free its lock: a driver that closes, a
mirror that brings the last files of a copy."""
_EVERY_S = 0.05


def remove_directory(directory: Path, let_go_s: float = _LET_GO_S) -> None:
    """Delete a run's directory: record, logs, checkpoints and values.

    Of a run that is over, waits up to ``let_go_s`` seconds for who is still at its files.

    Raises
    ------
    LedgerBusyError
        A controller drives it; stop it first.
    RunNotFoundError
        There is no such directory.
    """
    run_id = directory.name
    if directory.is_symlink() or not directory.is_dir():
        raise RunNotFoundError(f"there is no run {run_id}; `%runs` lists them", run_id=run_id)
    deadline_s = time.monotonic() + let_go_s
    while _is_held(directory):
        if time.monotonic() > deadline_s or not _is_over(directory):
            raise LedgerBusyError(
                f"run {run_id} is still active; `%runs stop {run_id}` first", run_id=run_id
            )
        time.sleep(_EVERY_S)
    shutil.rmtree(directory)


def _is_held(directory: Path) -> bool:
    """Whether somebody on this host writes it."""
    try:
        LedgerWriter.open(directory / LEDGER).close()
    except LedgerBusyError as error:
        if "lock" in error.fields:
            raise  # it may be active on another host
        return True
    except JupyterDDLError:
        pass  # a damaged ledger may be removed all the same
    return False


def _is_over(directory: Path) -> bool:
    try:
        return read_run_line(directory / LEDGER).finished_at_s is not None
    except JupyterDDLError:
        return False
