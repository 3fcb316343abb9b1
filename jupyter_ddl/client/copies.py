"""Files of runs in a cluster elsewhere: brought when they are opened, where they are not here yet.

The mirror of such a cluster copies what runs write as they go on, but large files only when asked.
A run of a cluster of this host has all that it tells of in its directory, and nobody is asked.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

from jupyter_ddl.client.elsewhere import join_elsewhere
from jupyter_ddl.client.session import session
from jupyter_ddl.errors import ClusterError, ControllerError, JupyterDDLError, RunNotFoundError
from jupyter_ddl.formats import format_bytes
from jupyter_ddl.ledger.reader import read_run_line, read_submitted
from jupyter_ddl.protocol.mirroring import (
    BringBlob,
    BringRunFile,
    CopyBody,
    CopyState,
    FindBlobs,
    ListRunFiles,
    MissingBlobs,
    RunFilesResult,
    StoredFile,
)
from jupyter_ddl.protocol.program import blobs_of
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.store.blobs import find_blob
from jupyter_ddl.store.connection import read_connection
from jupyter_ddl.store.paths import COPY_NOTE, blob_dirs, ledger_path, run_dir

__all__ = [
    "bring_blobs",
    "files_there",
    "here",
    "is_copy",
    "lacks_blobs",
    "reach",
    "reach_run",
]

_STALLED_S = 60.0
"""A copy of which nothing has come for so long is given up."""
_SHOWN_AFTER_S = 1.0
_SHOWN_EVERY_S = 0.5


def here(run_id: str, path: str) -> Path:
    """Where a file of a run lies on this host; brought from the run's cluster if need be.

    What takes longer than a second shows how far it has come.

    Parameters
    ----------
    path : str
        Below the run's directory, as its record names it.

    Raises
    ------
    ControllerError
        The file lies elsewhere, and that cluster can't be asked, or nothing came for a minute.
    CapacityError
        There is no room for it here.
    """
    target = run_dir(run_id) / path
    if not target.exists() and is_copy(run_id):
        cluster = read_submitted(ledger_path(run_id)).spec.cluster
        _bring(cluster, BringRunFile(run_id, path), f"{path} of run {run_id}")
    return target


def bring_blobs(spec: RunSpec, at_most: int | None = None) -> None:
    """Bring what a run was made of, where it was submitted from elsewhere.

    Parameters
    ----------
    at_most : int, optional
        Bytes of captured values from which on nothing is brought.

    Raises
    ------
    As :func:`here`.
    """
    size_bytes = sum(each.size_bytes for each in spec.program.captures)
    if at_most is not None and size_bytes > at_most:
        return
    if is_copy(spec.run_id):
        missing = _missing_here(spec)
        for number, digest in enumerate(missing, 1):
            what = f"value {number} of {len(missing)} that run {spec.run_id} has captured"
            _bring(spec.cluster, BringBlob(digest), what)


def lacks_blobs(spec: RunSpec) -> bool:
    """Whether a run that is to go on lacks something that it was made of.

    Where its cluster is elsewhere, what that has counts.

    Raises
    ------
    ControllerError
        The cluster is elsewhere, and can't be asked.
    """
    missing = _missing_here(spec)
    if not missing or not is_copy(spec.run_id):
        return bool(missing)
    _connect(spec.cluster, f"what run {spec.run_id} was made of")
    result = session().ask(spec.cluster, FindBlobs(missing))
    return not isinstance(result, MissingBlobs) or bool(result.digests)


def files_there(run_id: str, cluster: str) -> tuple[StoredFile, ...]:
    """Files of a run beside its controller; none where that is on this host, or out of reach."""
    if not is_copy(run_id) or read_connection(cluster) is None:
        return ()
    try:
        result = session().ask(cluster, ListRunFiles(run_id))
    except JupyterDDLError:
        return ()
    return result.files if isinstance(result, RunFilesResult) else ()


def is_copy(run_id: str) -> bool:
    """Whether a run's directory here is a copy of that of a controller elsewhere."""
    return (run_dir(run_id) / COPY_NOTE).exists()


def reach_run(run_id: str, on_phase: Callable[[str], None] = lambda _: None) -> list[str]:
    """Join the cluster elsewhere that a run is in, unless it is here; lines on what hinders it.

    A run that has ended, or was one of this host's, is told as it is here: nobody is asked.
    """
    try:
        line = read_run_line(ledger_path(run_id))
    except JupyterDDLError:
        return []  # who shows it tells what is wrong with it
    is_over = line.finished_at_s is not None
    return [] if is_over or not is_copy(run_id) else reach(line.cluster, on_phase)


def reach(cluster: str, on_phase: Callable[[str], None] = lambda _: None) -> list[str]:
    """Join a cluster elsewhere, unless it is here; lines on what hinders it."""
    if read_connection(cluster) is not None:
        return []
    return join_elsewhere(on_phase, name=cluster, anew=True)


def _missing_here(spec: RunSpec) -> tuple[str, ...]:
    directories = blob_dirs()
    digests = dict.fromkeys(blobs_of(spec.program))
    return tuple(each for each in digests if find_blob(each, directories) is None)


def _connect(cluster: str, what: str) -> None:
    """Have a connection to a cluster elsewhere, which is never started for this."""
    troubles = reach(cluster)
    if read_connection(cluster) is None:
        why = "; ".join(troubles) or "which does not run any more"
        raise ControllerError(
            f"{what} is not on this host: it lies in cluster {cluster}, {why}", cluster=cluster
        )


def _bring(cluster: str, wanted: CopyBody, what: str) -> None:
    _connect(cluster, what)
    shown = _Progress(what, cluster)
    came_s, n_came = time.monotonic(), -1
    try:
        while not (state := _asked(cluster, wanted, what)).is_over:
            now = time.monotonic()
            if state.n_bytes > n_came:
                came_s, n_came = now, state.n_bytes
            elif now - came_s > _STALLED_S:
                raise ControllerError(
                    f"{what}: nothing has come from cluster {cluster} for {_STALLED_S:.0f} s, "
                    f"{format_bytes(state.n_bytes)} of {format_bytes(state.size_bytes)} are here; "
                    f"`%cluster status` tells how it is, ask again when it answers",
                    cluster=cluster,
                )
            shown(state)
    finally:
        shown.end()


def _asked(cluster: str, wanted: CopyBody, what: str) -> CopyState:
    try:
        state = session().ask(cluster, wanted)
    except RunNotFoundError:
        raise  # it says what is missing there
    except ClusterError as error:
        raise ControllerError(
            f"{what} lies in cluster {cluster}, which can't be asked for it: {error.message}",
            cluster=cluster,
        ) from None
    if not isinstance(state, CopyState):
        raise ControllerError(
            f"{what}: cluster {cluster} answered {type(state).__name__} instead of how far a copy "
            f"has come"
        )
    return state


class _Progress:
    """One line that is written over, where a copy takes long."""

    def __init__(self, what: str, cluster: str) -> None:
        self._text = f"{what} comes from cluster {cluster}"
        self._due_s = time.monotonic() + _SHOWN_AFTER_S
        self._n_written = 0

    def __call__(self, state: CopyState) -> None:
        now = time.monotonic()
        if now < self._due_s:
            return
        self._due_s = now + _SHOWN_EVERY_S
        size = f"{format_bytes(state.n_bytes)} of {format_bytes(state.size_bytes)}"
        line = f"{self._text}: {size}"
        sys.stderr.write(f"\r{line:<{self._n_written}}")
        sys.stderr.flush()
        self._n_written = len(line)

    def end(self) -> None:
        if self._n_written:
            sys.stderr.write("\n")
