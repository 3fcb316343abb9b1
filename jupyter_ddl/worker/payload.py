"""Captured values of a run, unpickled anew for every trial.

Large buffers are mapped copy-on-write: all trials and ranks of a host share the pages, and
what a trial writes into an array is gone with it.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jupyter_ddl.errors import SpecError
from jupyter_ddl.spec.program import MAIN_GLOBALS, Program
from jupyter_ddl.store.blobs import map_blob, read_blob

__all__ = ["CapturedValues"]


class _Unpickler(pickle.Unpickler):
    """Reads several pickles that share one memo, and binds functions to the trial's names."""

    def __init__(
        self, data: bytes, buffers: Iterator[memoryview], namespace: dict[str, Any]
    ) -> None:
        super().__init__(io.BytesIO(data), buffers=buffers)
        self._namespace = namespace

    def persistent_load(self, pid: Any) -> Any:
        if pid == MAIN_GLOBALS:
            return self._namespace
        raise SpecError(f"the captured values refer to {pid!r}, which this version does not know")


class CapturedValues:
    """The captures of one program, ready to be loaded into a trial's namespace.

    Raises
    ------
    BlobMissingError
        The payload is not on this host.
    """

    def __init__(self, program: Program, blob_dirs: tuple[Path, ...]) -> None:
        self._names = tuple(capture.name for capture in program.captures)
        self._buffers = program.buffers
        self._dirs = blob_dirs
        self._data = b""
        if program.payload is not None and self._names:
            # Bytes, because BytesIO then shares them instead of copying for every trial.
            self._data = read_blob(program.payload, blob_dirs)

    def load_into(self, namespace: dict[str, Any]) -> None:
        """Unpickle every capture under its name.

        Raises
        ------
        BlobMissingError
            A buffer is no longer on this host.
        Exception
            Whatever unpickling the user's objects raises.
        """
        if not self._data:
            return
        buffers = (map_blob(digest, self._dirs) for digest in self._buffers)
        unpickler = _Unpickler(self._data, buffers, namespace)
        # Values come last: setting functions up writes the notebook's globals that they use.
        values = [unpickler.load() for _ in self._names]
        namespace.update(zip(self._names, values, strict=True))
