"""Digests of estimators, parameters and data by content.

Equal content gives equal keys in every process, so that a resumed run finds what it has.  Types
count (``1`` and ``1.0`` may mean different things to an estimator); identities do not.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import Any

import cloudpickle
import numpy as np
from blake3 import blake3

from jupyter_ddl.store.blobs import digest_of

__all__ = ["key_of", "keys_of"]

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
