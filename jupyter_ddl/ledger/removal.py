"""Removes the directory of a run that nobody drives."""

from __future__ import annotations

import shutil
from pathlib import Path

from jupyter_ddl.errors import JupyterDDLError, LedgerBusyError, RunNotFoundError
from jupyter_ddl.ledger.file import LedgerWriter
from jupyter_ddl.store.paths import LEDGER

__all__ = ["remove_directory"]


def remove_directory(directory: Path) -> None:
    """Delete a run's directory: record, logs, checkpoints and values.

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
    try:
        LedgerWriter.open(directory / LEDGER).close()
    except LedgerBusyError as error:
        if "lock" in error.fields:
            raise  # it may be active on another host
        raise LedgerBusyError(
            f"run {run_id} is still active; `%runs stop {run_id}` first", run_id=run_id
        ) from None
    except JupyterDDLError:
        pass  # a damaged ledger may be removed all the same
    shutil.rmtree(directory)
