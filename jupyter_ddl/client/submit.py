"""From a compiled cell to a run on a cluster."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from jupyter_ddl.cell.draft import RunDraft
from jupyter_ddl.cell.options import EnvCheck
from jupyter_ddl.cell.provenance import collect
from jupyter_ddl.client.environment import check_before, folder_of
from jupyter_ddl.client.run import Run
from jupyter_ddl.client.session import session
from jupyter_ddl.errors import OptionError
from jupyter_ddl.protocol.requests import ResumeRun, SubmitRun
from jupyter_ddl.store.blobs import put_blob
from jupyter_ddl.store.connection import list_connections
from jupyter_ddl.store.nvml import inventory
from jupyter_ddl.store.paths import blob_dirs
from jupyter_ddl.tracking.tensorboard.writing import check_installed

__all__ = ["check_supported", "new_run_id", "resume_run", "submit"]

log = logging.getLogger(__name__)

_ID_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"


def new_run_id() -> str:
    """Short, unique, and in order of the day: ``r1121-k3f9``."""
    tail = "".join(secrets.choice(_ID_LETTERS) for _ in range(5))
    return f"r{time.strftime('%m%d')}-{tail}"


def check_supported(draft: RunDraft) -> None:
    """Refuse what cannot run here before a cluster is started for it; a running one answers itself.

    Raises
    ------
    OptionError
        Names the option.
    """
    if draft.spec.tensorboard:
        check_installed("--tensorboard")
    ranks = draft.spec.verb.ranks
    if not ranks.gpus_per_rank or list_connections():
        return
    found = inventory()
    if not found.gpus:
        raise OptionError(
            f"{ranks.gpus_option}: this host has no GPU ({found.state}); leave the option out to "
            f"run on the CPU"
        )


def submit(
    draft: RunDraft,
    *,
    env_check: EnvCheck | None = None,
    line: str = "",
    cell: str = "",
    notebook: Path | None = None,
    on_phase: Callable[[str], None] = lambda _: None,
    on_notice: Callable[[str], None] = log.warning,
) -> Run:
    """Store the cell's blobs, and hand the run to the controller.

    Raises
    ------
    WorkerEnvironmentError
        The workers' environment is not the kernel's, and ``--env-check`` does not let that pass.
    JupyterDDLError
        No cluster can be started, or the controller refuses the run.
    """
    check_supported(draft)
    cluster = session().ensure(on_phase)
    environment = check_before(cluster, draft.imports, folder_of(notebook), env_check, on_notice)
    _store(draft)
    origin = collect(line, cell, notebook, draft.spec.program.imports)
    provenance = msgspec.structs.replace(origin, environment=environment)
    spec = draft.submitted(new_run_id(), cluster, provenance)
    session().ask(cluster, SubmitRun(spec))
    return Run(spec.run_id)


def _store(draft: RunDraft) -> None:
    directories = blob_dirs()
    for digest, data in draft.blobs:
        put_blob(data, directories, digest)


def resume_run(
    run_id: str,
    draft: RunDraft | None = None,
    env_check: EnvCheck | None = None,
    on_phase: Callable[[str], None] = lambda _: None,
) -> Run:
    """Go on with a run that was stopped, failed or lost; finished trials are not run again.

    Raises
    ------
    OptionError
        The cell is not the one that the run was made of.
    """
    run = Run(run_id)
    if draft is not None and draft.spec.program.source.strip() != run.spec.program.source.strip():
        raise OptionError(
            f"the cell is not the one that run {run_id} was made of; `%runs show {run_id}` prints "
            f"that one, or run this cell without --resume"
        )
    if run.state == "complete":
        return run
    if draft is not None:
        _store(draft)  # those of a run that had ended may have been removed
    cluster = run.spec.cluster
    session().current = cluster
    session().ensure(on_phase)
    if draft is not None:
        check_before(cluster, draft.imports, folder_of(None), env_check)
    session().ask(cluster, ResumeRun(run_id))
    return run
