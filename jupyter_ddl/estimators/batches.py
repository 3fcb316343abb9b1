"""The calls of one parallel section, read as what they are, ready to be sent."""

from __future__ import annotations

import ast
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jupyter_ddl.cell.capture import CellPickler, capture
from jupyter_ddl.cell.modules import read_modules
from jupyter_ddl.cell.source import CellSource
from jupyter_ddl.estimators.keys import keys_of
from jupyter_ddl.spec.fit import BatchKind, FitCandidate, FitNode, FitPrefix, FitTable, FitUnit
from jupyter_ddl.worker.fit.table import SHARED

__all__ = ["Batch", "Call", "calls_batch", "sealed"]

Call = tuple[Any, tuple[Any, ...], dict[str, Any]]
"""Function, arguments and keyword arguments, as joblib has them."""
_SMALL = (type(None), bool, int, float, complex, str, bytes)


@dataclass(slots=True)
class Batch:
    """What goes to the cluster; unit ``n`` is call ``n``.

    Attributes
    ----------
    values : dict
        What ranks need, by name; a value that can't travel is refused under it.
    """

    kind: BatchKind
    values: dict[str, Any]
    candidates: tuple[FitCandidate, ...]
    units: tuple[FitUnit, ...]
    nodes: tuple[FitNode, ...] = ()
    prefixes: tuple[FitPrefix, ...] = ()
    keep_fitted: bool = False
    notes: tuple[str, ...] = ()
    parameters: list[Any] = field(default_factory=list)
    """Of a search: the parameters of each candidate."""
    error_score: Any = "raise"
    result_keys: tuple[str, ...] = ()
    """Of a search: what the result of a unit has, for those whose process died."""


def sealed(
    batch: Batch, namespace: Mapping[str, Any], folder: Path, limit_bytes: int | None = None
) -> tuple[FitTable, list[tuple[str, bytes | memoryview]], frozenset[str]]:
    """The batch's table, the blobs that it refers to, and modules that its values come from.

    Raises
    ------
    CaptureError
        A value can't be pickled, or is too large.
    """
    captured = capture(batch.values, namespace, limit_bytes)
    modules = read_modules(CellSource("", ast.parse(""), "fit"), folder, captured.modules)
    table = FitTable(
        kind=batch.kind,
        captures=captured.names,
        payload=captured.digest,
        buffers=tuple(digest for digest, _ in captured.buffers),
        modules=modules.files,
        prefixes=batch.prefixes,
        keep_fitted=batch.keep_fitted,
    )
    blobs: list[tuple[str, bytes | memoryview]] = [*captured.buffers, *modules.contents]
    if captured.digest is not None:
        blobs.append((captured.digest, captured.payload))
    return table, blobs, captured.modules


def calls_batch(
    calls: Sequence[Call], namespace: Mapping[str, Any], *, is_refit: bool = False
) -> Batch:
    """Any parallel section: what several calls have in common travels once.

    Parameters
    ----------
    is_refit : bool
        Whether a search makes the calls to fit its best candidate anew.

    Raises
    ------
    CaptureError
        A call can't be pickled.
    """
    calls = _with_one_function(calls)
    shared = _shared(calls)
    numbers = {id(value): number for number, value in enumerate(shared)}
    encoded = [_encoded(call, numbers, namespace) for call in calls]
    name = _name_of(calls[0][0])
    common = keys_of(len(calls), *shared)
    return Batch(
        kind="calls",
        values={"shared": shared, "calls": encoded},
        candidates=(
            FitCandidate(
                {"refit" if is_refit else "parallel": name, "calls": len(calls)},
                len(calls),
                is_refit,
                is_whole=True,
            ),
        ),
        units=tuple(
            FitUnit(0, number, (), keys_of(common, number, data))
            for number, data in enumerate(encoded)
        ),
    )


def _with_one_function(calls: Sequence[Call]) -> list[Call]:
    """Scikit-learn wraps the function anew for every call; the first wrapper does for all."""
    first = calls[0][0]
    inner = getattr(first, "function", None)
    if inner is None or any(getattr(f, "function", None) is not inner for f, _, _ in calls):
        return list(calls)
    return [(first, args, kwargs) for _, args, kwargs in calls]


def _shared(calls: Sequence[Call]) -> list[Any]:
    """Objects that at least two calls are given."""
    seen: Counter[int] = Counter()
    known: dict[int, Any] = {}
    for function, args, kwargs in calls:
        mine = {id(value): value for value in (function, *args, *kwargs.values())}
        seen.update(mine.keys())
        known |= mine
    return [known[i] for i, n in seen.items() if n > 1 and not isinstance(known[i], _SMALL)]


def _encoded(call: Call, numbers: dict[int, int], namespace: Mapping[str, Any]) -> bytes:
    stream = io.BytesIO()
    pickler = _CallPickler(stream, namespace, numbers)
    try:
        pickler.dump(call)
    except Exception:
        # The same, said with the name of what can't be pickled.
        names = [f"argument {n}" for n in range(len(call[1]))]
        capture({**dict(zip(names, call[1], strict=True)), **call[2]}, namespace)
        raise
    return stream.getvalue()


class _CallPickler(CellPickler):
    def __init__(self, file: Any, namespace: Mapping[str, Any], numbers: dict[int, int]) -> None:
        super().__init__(file, namespace, None)
        self._numbers = numbers

    def persistent_id(self, obj: Any) -> Any:
        number = self._numbers.get(id(obj))
        return super().persistent_id(obj) if number is None else (SHARED, number)


def _name_of(function: Any) -> str:
    inner = getattr(function, "function", function)
    return str(getattr(inner, "__name__", type(inner).__name__)).lstrip("_")
