"""Ledgers that no driver of this controller has open: read before a run is resumed, or ended.

What is here blocks: call it in a thread.
"""

from __future__ import annotations

import logging

from jupyter_ddl.drivers.group_record import end_record
from jupyter_ddl.errors import JupyterDDLError
from jupyter_ddl.events.ledger import LedgerWriter
from jupyter_ddl.events.messages import RunFinished
from jupyter_ddl.events.reader import read_ledger, read_summary
from jupyter_ddl.events.reducer import RunState, fold
from jupyter_ddl.store.paths import ledger_path, runs_dir

__all__ = ["append_end", "fold_run", "unfinished_runs"]

log = logging.getLogger(__name__)


def append_end(run_id: str, event: RunFinished) -> None:
    """Record the end of a run whose driver can't."""
    with LedgerWriter.open(ledger_path(run_id)) as ledger:
        ledger.append([event])


def fold_run(run_id: str) -> RunState:
    """A run as its ledger tells.  Raises as ``read_ledger`` does."""
    state = RunState()
    for event in read_ledger(ledger_path(run_id)):
        fold(state, event)
    return state


def unfinished_runs(cluster: str) -> list[str]:
    """Runs of a cluster of this name that can go on; persistent groups among them are ended."""
    found = []
    for directory in sorted(runs_dir().iterdir()):
        path = directory / "ledger.ddl"
        if not path.exists():
            continue
        try:
            summary = read_summary(path)
        except JupyterDDLError as error:
            log.warning("run %s can't be read: %s", directory.name, error.message)
            continue
        if summary.cluster == cluster and summary.finished_at_s is None:
            if summary.verb == "run":
                _end_group(directory.name)
            else:
                found.append(directory.name)
    return found


def _end_group(run_id: str) -> None:
    """A persistent group is over when its controller is: nobody can give the variables back."""
    try:
        end_record(run_id, "its controller ended")
    except JupyterDDLError as error:
        log.warning("the end of group %s is not recorded: %s", run_id, error.message)
