"""What a view of a long run that is over shows first, kept beside the run's record.

To fold the record of a hundred thousand trials takes seconds, whenever a server has begun anew.
What comes of it for a page is a few megabytes that never change again, until the run goes on.
"""

from __future__ import annotations

import contextlib
import logging
import time
from pathlib import Path

import msgspec
from blake3 import blake3

from jupyter_ddl import __version__
from jupyter_ddl.errors import JupyterDDLError
from jupyter_ddl.ledger.run_state import RunState
from jupyter_ddl.ledger.snapshots import encoded_snapshot
from jupyter_ddl.protocol.reading import from_msgpack
from jupyter_ddl.protocol.snapshot import EncodedSnapshot
from jupyter_ddl.protocol.view_messages import ColumnsPart, GetColumns
from jupyter_ddl.server.run_list import Folds, check_run
from jupyter_ddl.store.atomic import write_whole
from jupyter_ddl.store.paths import ledger_path, run_dir
from jupyter_ddl.views.channel import Columns
from jupyter_ddl.views.columns import columns_part

__all__ = ["N_LONG", "columns_kept", "keep_first_view", "snapshot_kept"]

log = logging.getLogger(__name__)

N_LONG = 10_000
"""Trials from which on it is worth a file: they take half a second to be folded."""
_NAME = "first-view"
_MAX_BYTES = 256 << 20
_DIGEST = 32
"""Bytes of a digest in front: a flipped bit would be a value that nobody has reported."""


class _Mark(msgspec.Struct, frozen=True):
    """Of which record it was made, and by what."""

    version: str
    size: int
    changed_ns: int


class _FirstView(msgspec.Struct, frozen=True):
    mark: _Mark
    snapshot: EncodedSnapshot
    columns: tuple[tuple[ColumnsPart, bytes], ...]


def keep_first_view(folds: Folds, run_id: str) -> None:
    """Write the file of a run that is over, if it is long; a disk that is full is no matter."""
    try:
        mark = _mark_of(run_id)
    except OSError:
        return  # removed meanwhile: the next look tells of that

    def made(state: RunState) -> _FirstView | None:
        if state.end is None or len(state.trials) < N_LONG:
            return None
        snapshot = encoded_snapshot(state, time.time())
        first = columns_part(state, GetColumns(0, run_id))
        others = (
            columns_part(state, GetColumns(0, run_id, part=part))
            for part in range(1, first[0].n_parts)
        )
        return _FirstView(mark, snapshot, (first, *others))

    view = folds.poll(run_id, made)
    if view is not None and not folds.damage(run_id):
        try:
            if _mark_of(run_id) != mark:
                return
            content = msgspec.msgpack.encode(view)
            write_whole(_path(run_id), blake3(content).digest() + content)
        except OSError as error:
            log.info("the first view of run %s is not kept: %s", run_id, error)


def snapshot_kept(run_id: str) -> EncodedSnapshot | None:
    """The last snapshot of a run whose record is as it was when its first view was kept."""
    view = _read(run_id)
    return None if view is None else view.snapshot


def columns_kept(ask: GetColumns) -> Columns | None:
    """A part of its columns; None: the record has to be asked."""
    view = _read(ask.run_id) if ask.since <= 0 else None
    if view is None:
        return None
    head, data = view.columns[min(max(ask.part, 0), len(view.columns) - 1)]
    return Columns(msgspec.structs.replace(head, id=ask.id), data)


def _read(run_id: str) -> _FirstView | None:
    with contextlib.suppress(JupyterDDLError, OSError, msgspec.MsgspecError, ValueError):
        check_run(run_id)
        path = _path(run_id)
        if path.stat().st_size > _MAX_BYTES:
            return None
        data = memoryview(path.read_bytes())
        digest, content = data[:_DIGEST], data[_DIGEST:]
        if blake3(content).digest() != digest:
            return None
        view = from_msgpack(content, _FirstView)
        if view.snapshot.run_id == run_id and view.columns and view.mark == _mark_of(run_id):
            return view
    return None


def _mark_of(run_id: str) -> _Mark:
    facts = ledger_path(run_id).stat()
    return _Mark(__version__, facts.st_size, facts.st_mtime_ns)


def _path(run_id: str) -> Path:
    return run_dir(run_id) / _NAME
