"""One cell of a persistent group: variables in, code executed, values out."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path
from types import CodeType
from typing import Any

import msgspec

from jupyter_ddl.events.cell_results import CellOutcome, CellValue
from jupyter_ddl.events.messages import Failure
from jupyter_ddl.spec.cells import Cell, RunCell
from jupyter_ddl.spec.program import Program
from jupyter_ddl.worker.compiling import compile_cell, register_source
from jupyter_ddl.worker.modules import install_modules
from jupyter_ddl.worker.payload import CapturedValues
from jupyter_ddl.worker.values import brought, inline, save_values

__all__ = ["CellRun", "Ending"]

_MAX_TEXT = 64 * 1024


class Ending(msgspec.Struct):
    """How a cell ended, before it is known where its output ends."""

    outcome: CellOutcome
    text: str | None = None
    value: CellValue = None
    has_value: bool = False
    values_file: str | None = None
    failure: Failure | None = None


class CellRun:
    """Executes cells in ``namespace``; what they raise comes out as it is."""

    def __init__(
        self, namespace: dict[str, Any], run_dir: Path, blob_dirs: tuple[Path, ...], rank: int
    ) -> None:
        self._namespace = namespace
        self._first_names = set(namespace)
        self._run_dir = run_dir
        self._blob_dirs = blob_dirs
        self._rank = rank
        self._runner: asyncio.Runner | None = None
        self._awaits = False

    def execute(self, message: RunCell) -> Ending:
        """Execute a cell; its value and the brought ones are part of the ending."""
        cell = message.cell
        install_modules(cell.modules, self._blob_dirs, self._run_dir)
        self._load_pushed(cell)
        program = Program(cell.source, cell.filename, ends_in_expression=True)
        register_source(program)
        (body, last), _ = compile_cell(program)
        codes = (body,) if last is None else (body, last)
        self._awaits = any(code.co_flags & inspect.CO_COROUTINE for code in codes)
        self._evaluate(body)
        ending = Ending("complete")
        values: dict[str, Any] = {}
        if last is not None:
            value = self._namespace["_"] = self._evaluate(last)
            ending.text = None if value is None else _shown(repr(value))
            if cell.keep_value:
                ending.has_value, ending.value = inline(value)
                if not ending.has_value:
                    values["value"] = value
        values |= brought(cell.bring, self._namespace, self._first_names)
        if values:
            ending.values_file = f"cell-{message.number}-r{self._rank}.pkl"
            save_values(values, self._run_dir / "values" / ending.values_file)
        return ending

    def _load_pushed(self, cell: Cell) -> None:
        if cell.payload is None:
            return
        pushed = Program("", "", captures=cell.pushed, payload=cell.payload, buffers=cell.buffers)
        CapturedValues(pushed, self._blob_dirs).load_into(self._namespace)

    def _evaluate(self, code: CodeType) -> Any:
        if not self._awaits:
            return eval(code, self._namespace)
        if self._runner is None:  # one loop for all cells: what an await has made stays usable
            self._runner = asyncio.Runner()
        return self._runner.run(self._evaluate_in_loop(code))

    async def _evaluate_in_loop(self, code: CodeType) -> Any:
        result = eval(code, self._namespace)
        return await result if code.co_flags & inspect.CO_COROUTINE else result


def _shown(text: str) -> str:
    if len(text) <= _MAX_TEXT:
        return text
    half = _MAX_TEXT // 2
    return f"{text[:half]}\n… {len(text) - 2 * half:,} characters left out …\n{text[-half:]}"
