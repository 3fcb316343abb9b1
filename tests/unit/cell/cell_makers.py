"""Notebooks and cells for the tests of jupyter_ddl.cell, and the rank's side of captures."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

from jupyter_ddl.cell.capture import Captured
from jupyter_ddl.cell.draft import CellContext, RunDraft
from jupyter_ddl.protocol.program import MAIN_GLOBALS
from jupyter_ddl.verbs.base import parse_line


def notebook(code: str = "", **names: Any) -> dict[str, Any]:
    """A notebook's globals after a cell with ``code``."""
    namespace: dict[str, Any] = {"__name__": "__main__", "__builtins__": __builtins__, **names}
    exec(compile(code, "In [1]", "exec"), namespace)
    return namespace


def compiled(
    line: str, cell: str, namespace: dict[str, Any] | None = None, folder: Path | None = None
) -> RunDraft:
    """A line and a cell, compiled as ``In [3]``."""
    context = CellContext(cell_number=3, notebook_dir=folder or Path("/nonexistent"))
    verb, options = parse_line(line)
    return verb.compile(cell, namespace or notebook(), context, options)


def restored(captured: Captured, main: dict[str, Any] | None = None) -> dict[str, Any]:
    """What a rank finds: every captured name, functions bound to ``main``."""
    target: dict[str, Any] = {"__name__": "__main__"} if main is None else main

    class Unpickler(pickle.Unpickler):
        def persistent_load(self, pid: Any) -> Any:
            assert pid == MAIN_GLOBALS
            return target

    buffers = iter([memoryview(bytearray(view)) for _, view in captured.buffers])
    unpickler = Unpickler(io.BytesIO(captured.payload), buffers=buffers)
    values = [unpickler.load() for _ in captured.names]
    target.update({each.name: value for each, value in zip(captured.names, values, strict=True)})
    return target
