"""Writes a run's event files: all at once, or beside the run until its end."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from jupyter_ddl.errors import LedgerBusyError, OptionError, RunNotFoundError
from jupyter_ddl.ledger.reader import LedgerReader
from jupyter_ddl.store.locks import HOME_SETTING, try_lock
from jupyter_ddl.store.paths import ledger_path, private_dir, run_dir
from jupyter_ddl.tracking.tensorboard.event_files import RunFiles

__all__ = ["check_installed", "follow_run", "tensorboard_dir", "write_run"]

log = logging.getLogger(__name__)

_POLL_S = 1.0
_LOCK = ".lock"


def tensorboard_dir(run_id: str) -> Path:
    """Where the event files of a run lie that was started with ``--tensorboard``."""
    return run_dir(run_id) / "tensorboard"


def check_installed(what: str) -> None:
    """Refuse ``what`` where TensorBoard's own package is missing.

    Raises
    ------
    OptionError
        Says how to install it.
    """
    if importlib.util.find_spec("tensorboard") is None:
        raise OptionError(
            f"{what}: the package tensorboard is not installed here; "
            f"`%pip install tensorboard`, or leave the option out"
        )


def write_run(run_id: str, directory: Path) -> int:
    """Bring the event files of a run up to date, and return the number of events read.

    Raises
    ------
    OptionError
        The package tensorboard is missing.
    LedgerBusyError
        Another process writes them now.
    RunNotFoundError, LedgerError
        There is no such run, or its ledger is damaged.
    """
    check_installed("event files for TensorBoard")
    path = ledger_path(run_id)
    if not path.exists():
        raise RunNotFoundError(f"there is no run {run_id}; `%runs` lists them", run_id=run_id)
    with _alone(directory, run_id), LedgerReader(path) as reader:
        files = RunFiles(directory)
        for event in reader.poll():
            files.add(event)
        files.flush()
        return reader.n_records


def follow_run(run_id: str, stopped: threading.Event) -> None:
    """Keep the event files of a run up to date until it ends; raises as :func:`write_run`.

    Parameters
    ----------
    stopped : threading.Event
        Once it is set, what there is is written, and no more.
    """
    directory = tensorboard_dir(run_id)
    with _alone(directory, run_id), LedgerReader(ledger_path(run_id)) as reader:
        files = RunFiles(directory)
        while True:
            is_last = stopped.is_set()
            for event in reader.poll():
                files.add(event)
            try:
                files.flush()
            except OSError as error:  # a full disk: what is missing is written later
                log.warning("event files of run %s are behind: %s", run_id, error)
            else:
                if files.is_over:
                    return
            if is_last:
                return
            stopped.wait(_POLL_S)


@contextlib.contextmanager
def _alone(directory: Path, run_id: str) -> Iterator[None]:
    """One writer at a time: two would both append what is missing."""
    private_dir(directory)
    path = directory / _LOCK
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not try_lock(fd, path, HOME_SETTING):
            raise LedgerBusyError(
                f"the event files of run {run_id} in {directory} are being written by another "
                f"process; they are up to date a second after the run"
            )
        yield
    finally:
        os.close(fd)
