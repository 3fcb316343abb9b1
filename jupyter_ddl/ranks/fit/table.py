"""A batch of calls in a rank: what they have in common is unpickled once, the rest call by call."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import Any

from jupyter_ddl.protocol.fit import FitTable
from jupyter_ddl.protocol.program import MAIN_GLOBALS, Program
from jupyter_ddl.protocol.reading import msgpack_decoder
from jupyter_ddl.ranks.payload import CapturedValues, install_modules
from jupyter_ddl.ranks.settings import RankSettings
from jupyter_ddl.store.blobs import read_blob

__all__ = ["SHARED", "LoadedTable"]

SHARED = "jupyter_ddl:shared"
"""First half of the persistent id of an object that several calls have in common."""
_TABLE = msgpack_decoder(FitTable)


class LoadedTable:
    """One batch, ready to be executed."""

    def __init__(
        self, digest: str, dirs: tuple[Path, ...], run_dir: Path, settings: RankSettings
    ) -> None:
        self.digest = digest
        self.table = _TABLE.decode(read_blob(digest, dirs))
        settings.use(self.table.settings, dirs)
        install_modules(self.table.modules, dirs, run_dir)
        self._main = ModuleType("__main__")
        program = Program(
            "",
            "",
            captures=self.table.captures,
            payload=self.table.payload,
            buffers=self.table.buffers,
        )
        sys.modules["__main__"] = self._main
        loaded: dict[str, Any] = {}
        values = CapturedValues(program, dirs)
        values.load_into(self._main.__dict__)
        for capture in self.table.captures:
            loaded[capture.name] = self._main.__dict__.pop(capture.name)
        self.values = loaded

    def enter(self) -> None:
        """Make the notebook's names what functions of the notebook see."""
        sys.modules["__main__"] = self._main

    def call(self, number: int) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        """One call of a batch of calls, unpickled afresh."""
        unpickler = _CallUnpickler(
            self.values["calls"][number], self.values["shared"], self._main.__dict__
        )
        function, args, kwargs = unpickler.load()
        return function, args, kwargs


class _CallUnpickler(pickle.Unpickler):
    def __init__(self, data: bytes, shared: list[Any], namespace: dict[str, Any]) -> None:
        super().__init__(BytesIO(data), buffers=_no_buffers())
        self._shared = shared
        self._namespace = namespace

    def persistent_load(self, pid: Any) -> Any:
        if pid == MAIN_GLOBALS:
            return self._namespace
        kind, number = pid
        if kind != SHARED:
            raise pickle.UnpicklingError(f"a call refers to {pid!r}")
        return self._shared[number]


def _no_buffers() -> Iterator[memoryview]:
    return iter(())
