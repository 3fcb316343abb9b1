"""Which files of a run are copied how."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from jupyter_ddl.errors import CapacityError, JupyterDDLError
from jupyter_ddl.ledger.writer import lock_path
from jupyter_ddl.protocol.mirroring import StoredFile
from jupyter_ddl.store.exhaustion import used_up
from jupyter_ddl.store.paths import COPY_NOTE, LEDGER

__all__ = ["APPENDED", "LOGS", "UNASKED_BYTES", "Bounds", "is_own", "told"]

UNASKED_BYTES = 64 << 20
"""Larger files stay away until somebody asks for one; of a longer log, the end comes."""
_OWN = frozenset({LEDGER, lock_path(Path(LEDGER)).name, COPY_NOTE})
_OWN_FOLDER = "tensorboard/"
"""Event files are written where they are looked at."""
LOGS = "logs/"
APPENDED = (LOGS, "telemetry.jsonl")
_CHECKPOINTS = "checkpoints/"


def is_own(path: str) -> bool:
    """Whether a copy has such a file of its own, which neither comes nor goes."""
    return path in _OWN or path.startswith(_OWN_FOLDER)


class Bounds(msgspec.Struct, frozen=True):
    """What comes unasked."""

    unasked_bytes: int = UNASKED_BYTES
    checkpoint_bytes: int = 0

    def keep_away(self, file: StoredFile) -> bool:
        """Whether a file stays where it is until somebody asks for it."""
        if file.path.startswith(_CHECKPOINTS):
            return file.size_bytes > self.checkpoint_bytes or not self.checkpoint_bytes
        return file.size_bytes > self.unasked_bytes and not file.path.startswith(LOGS)

    def at_once(self, files: Iterable[StoredFile]) -> tuple[list[StoredFile], list[StoredFile]]:
        """Those that come before the ledger does, and the others: who attaches waits for the first.

        Small ones come first, and of a large one only the next has to wait.
        """
        now, later, n_bytes = [], [], 0
        for file in sorted(files, key=lambda each: each.size_bytes):
            if file.path.startswith(APPENDED):
                now.append(file)
            elif n_bytes < self.unasked_bytes:
                now.append(file)
                n_bytes += file.size_bytes
            else:
                later.append(file)
        return now, later


@contextlib.contextmanager
def told(run_id: str) -> Iterator[None]:
    """Errors of this disk, as people are told them."""
    try:
        yield
    except JupyterDDLError:
        raise
    except OSError as error:
        raise CapacityError(
            f"copying run {run_id} failed: {error.strerror}{used_up(error)}; make room, or set "
            f"JUPYTER_DDL_HOME to a larger disk; nothing is lost, it goes on then",
            run_id=run_id,
        ) from error
