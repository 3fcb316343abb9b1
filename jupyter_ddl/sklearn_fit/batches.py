"""The calls of one parallel section, read as what they are, ready to be sent."""

from __future__ import annotations

import ast
import contextlib
import io
import secrets
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
from blake3 import blake3

from jupyter_ddl.cell.capture import CellPickler, capture
from jupyter_ddl.cell.modules import read_modules
from jupyter_ddl.cell.settings import read_settings
from jupyter_ddl.cell.source import CellSource
from jupyter_ddl.protocol.fit import BatchKind, FitCandidate, FitNode, FitPrefix, FitTable, FitUnit
from jupyter_ddl.ranks.fit.table import SHARED
from jupyter_ddl.store.blobs import digest_of

__all__ = ["Batch", "Call", "calls_batch", "is_verbose", "key_of", "keys_of", "sealed"]


# Digests of estimators, parameters and data by content.
#
# Equal content gives equal keys in every process, so that a resumed run finds what it has.  Types
# count (``1`` and ``1.0`` may mean different things to an estimator); identities do not.

_SIZE = 16
_DIRECT = (type(None), bool, int, float, complex, str, bytes)


def keys_of(*values: Any) -> bytes:
    """Digest of several values in order; unlike any other if one of them can't be pickled."""
    try:
        return _joined(b"keys", [key_of(value) for value in values])
    except Exception:  # noqa: BLE001 - sending it is refused with its name, or it never travels
        return secrets.token_bytes(_SIZE)


def key_of(value: Any) -> bytes:
    """Digest of one value.

    Raises
    ------
    Exception
        Whatever pickling an object raises that is known in no other way.
    """
    kind = type(value)
    if kind in _DIRECT:
        return _joined(kind.__name__.encode(), (repr(value).encode("utf-8", "surrogatepass"),))
    if kind in (list, tuple):
        return _sequence(kind, value)
    if kind is dict:
        pairs = ((key_of(k), key_of(v)) for k, v in value.items())
        return _joined(b"dict", (part for pair in sorted(pairs) for part in pair))
    if kind in (set, frozenset):
        return _joined(b"set", sorted(map(key_of, value)))
    if isinstance(value, np.ndarray) and value.dtype != object:
        return _array(value)
    if isinstance(value, np.generic):
        return _joined(b"scalar", (str(value.dtype).encode(), value.tobytes()))
    if _is_estimator(value):
        return _estimator(value)
    if (arrays := _arrays_of(value)) is not None:
        name = f"{kind.__module__}.{kind.__qualname__}".encode()
        return _joined(name, map(key_of, arrays))
    return _joined(b"pickle", (_pickled(value),))


def _joined(kind: bytes, parts: Iterable[bytes]) -> bytes:
    digest = blake3(kind)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest(_SIZE)


def _sequence(kind: type, value: Any) -> bytes:
    if all(type(each) is str for each in value):
        encoded = (each.encode("utf-8", "surrogatepass") for each in value)
        return _joined(kind.__name__.encode() + b" of str", encoded)
    return _joined(kind.__name__.encode(), map(key_of, value))


def _array(value: np.ndarray[Any, Any]) -> bytes:
    plain = np.ascontiguousarray(value)
    facts = f"{plain.dtype.str} {value.shape} {type(value).__name__}".encode()
    raw: Any = plain.view(np.uint8).reshape(-1) if plain.size else b""
    view = memoryview(raw)
    return _joined(b"array", (facts, digest_of(view).encode()))


def _is_estimator(value: Any) -> bool:
    return hasattr(value, "get_params") and hasattr(value, "fit") and not isinstance(value, type)


def _estimator(value: Any) -> bytes:
    """By class and parameters, and by what else a clone keeps."""
    kind = type(value)
    kept = {
        name: vars(value)[name]
        for name in ("_sklearn_output_config", "_metadata_request")
        if name in getattr(value, "__dict__", {})
    }
    name = f"{kind.__module__}.{kind.__qualname__}".encode()
    if kind.__module__ == "__main__":
        name += _pickled(kind)  # its code is part of what it does
    parts = [name, key_of(value.get_params(deep=False))]
    if kept:
        parts.append(_pickled(kept))
    return _joined(b"estimator", parts)


def _arrays_of(value: Any) -> list[Any] | None:
    """The arrays that sparse matrices and data frames consist of; None for anything else."""
    module = type(value).__module__
    if module.startswith("scipy.sparse"):
        if hasattr(value, "indptr"):
            return [value.shape, value.indptr, value.indices, value.data]
        coo = value.tocoo()
        return [value.shape, coo.row, coo.col, coo.data]
    if module.startswith("pandas") and hasattr(value, "columns") and hasattr(value, "index"):
        columns = [value.iloc[:, position] for position in range(value.shape[1])]
        return [list(value.columns), value.index.to_numpy(), *columns]
    if module.startswith("pandas") and hasattr(value, "to_numpy") and hasattr(value, "name"):
        return [value.name, str(value.dtype), _plain(value.to_numpy())]
    return None


def _plain(values: np.ndarray[Any, Any]) -> Any:
    return values.tolist() if values.dtype == object else values


def _pickled(value: Any) -> bytes:
    data: bytes = cloudpickle.dumps(value, protocol=5)
    return data


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
    is_verbose: bool = False
    """Whether what units print is shown in the cell."""
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
    source = CellSource("", ast.parse(""), "fit")
    modules = read_modules(source, folder, captured.modules, captured.functions)
    carried = read_settings()
    table = FitTable(
        kind=batch.kind,
        captures=captured.names,
        payload=captured.digest,
        buffers=tuple(digest for digest, _ in captured.buffers),
        modules=modules.files,
        settings=carried.settings,
        prefixes=batch.prefixes,
        keep_fitted=batch.keep_fitted,
        is_verbose=batch.is_verbose,
    )
    blobs: list[tuple[str, bytes | memoryview]] = [
        *captured.buffers,
        *modules.contents,
        *carried.blobs.items(),
    ]
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
        is_verbose=is_verbose(*calls[0][1:]),
    )


def is_verbose(args: Sequence[Any], options: Mapping[str, Any]) -> bool:
    """Whether a call, or an estimator that it is given, was told to print how it gets on."""
    given = list(args) + list(options.values())
    asked = [options.get("verbose")]
    for each in filter(_is_estimator, given):
        with contextlib.suppress(Exception):  # one that was made wrong says so where it is fitted
            params = each.get_params(deep=True).items()
            asked += [value for name, value in params if name.rpartition("__")[2] == "verbose"]
    return any(isinstance(value, int | np.integer) and value > 0 for value in asked)


def _with_one_function(calls: Sequence[Call]) -> list[Call]:
    """Scikit-learn wraps the function again for every call; the first wrapper does for all."""
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
