"""Removes captured values that no run needs any more.

A large array in shared memory is the host's memory: it goes an hour after its last use, and with
the last controller.  What an unfinished run needs stays, so that it can be resumed.  What another
home has is left alone as long as that home exists.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
from pathlib import Path

import msgspec

from jupyter_ddl.errors import JupyterDDLError
from jupyter_ddl.ledger.reader import read_run_line, read_submitted
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.store.blobs import digest_of, trim_blobs
from jupyter_ddl.store.connection import list_connections
from jupyter_ddl.store.paths import blob_dirs, home_of_memory, memory_blob_dir, runs_dir

__all__ = ["care_for_blobs"]

log = logging.getLogger(__name__)

_KEPT_IN_MEMORY_S = 3600.0
_KEPT_ON_DISK_S = 7 * 86400.0
_JUST_STORED_S = 10.0
"""A client may be about to submit a run to a new controller."""


def care_for_blobs(*, leaving: bool = False) -> int:
    """Trim the blob directories; returns the bytes freed.

    Parameters
    ----------
    leaving : bool
        This controller ends: without another one, nothing in memory is kept for a second run.
    """
    keep = _needed_blobs()
    memory = memory_blob_dir()
    alone = leaving and not list_connections()
    freed = 0
    for directory in blob_dirs():
        memory_age_s = _JUST_STORED_S if alone else _KEPT_IN_MEMORY_S
        age_s = memory_age_s if directory == memory else _KEPT_ON_DISK_S
        with contextlib.suppress(OSError):  # a directory that can't be read is not cared for
            freed += trim_blobs((directory,), keep, age_s)
    if freed:
        log.info("removed %d bytes of captured values", freed)
    if memory is not None:
        _forget_lost_homes(memory)
    return freed


def _forget_lost_homes(memory: Path) -> None:
    """Remove what lies beside our blobs and belonged to a home that was deleted."""
    with contextlib.suppress(OSError):
        for other in memory.parent.iterdir():
            home = home_of_memory(other)
            if home is not None and other != memory and not home.exists():
                log.info("removing the captured values of %s, which is gone", home)
                shutil.rmtree(other, ignore_errors=True)


def _needed_blobs() -> frozenset[str]:
    """Digests of everything that unfinished runs are made of."""
    needed: set[str] = set()
    for path in runs_dir().glob("*/ledger.ddl"):
        with contextlib.suppress(JupyterDDLError):  # what can't be read can't be resumed
            needed |= _blobs_of(path)
    return frozenset(needed)


def _blobs_of(ledger: Path) -> set[str]:
    if read_run_line(ledger).finished_at_s is not None:
        return set()
    program: Program = read_submitted(ledger).spec.program
    digests = {digest_of(msgspec.msgpack.encode(program)), *program.buffers}
    digests |= {file.digest for file in (*program.modules, *program.data)}
    if program.payload is not None:
        digests.add(program.payload)
    if program.settings is not None:
        digests.add(program.settings.blob)
    return digests
