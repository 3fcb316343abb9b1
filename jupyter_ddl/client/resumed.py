"""Which captured values are others today than when a run was made that is resumed."""

from __future__ import annotations

import io
import pickle
import types
from collections.abc import Iterator
from typing import Any

from jupyter_ddl.cell.capture import CellPickler
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.ranks.payload import CapturedValues
from jupyter_ddl.store.blobs import digest_of
from jupyter_ddl.store.paths import blob_dirs

__all__ = ["changed_values"]

_MADE_BY_PYTHON = frozenset({"__module__", "__qualname__", "__firstlineno__"})


def changed_values(before: Program, now: Program) -> tuple[str, ...]:
    """Names of values that a run has otherwise than the notebook.

    Both are read from what was stored, so that the way through a file makes no difference.
    """
    if (before.payload, before.buffers) == (now.payload, now.buffers):
        return ()
    try:
        old, new = _digests(before), _digests(now)
    except Exception:  # noqa: BLE001 - unpickling runs code of the values' own, or they are gone
        old, new = (
            {each.name: (each.type_name, each.size_bytes) for each in program.captures}
            for program in (before, now)
        )
    return tuple(name for name in old if name in new and old[name] != new[name])


def _digests(program: Program) -> dict[str, Any]:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    CapturedValues(program, blob_dirs()).load_into(namespace)
    return {each.name: _digest(namespace[each.name], namespace) for each in program.captures}


def _digest(value: Any, namespace: dict[str, Any]) -> str:
    buffers: list[str] = []

    def note(buffer: pickle.PickleBuffer) -> None:
        buffers.append(digest_of(buffer.raw()))

    stream = io.BytesIO()
    _ContentPickler(stream, namespace, note).dump(value)
    return digest_of(stream.getvalue() + "".join(buffers).encode())


class _ContentPickler(CellPickler):
    """Leaves out what differs each time: numbers of cells and lines, and identities of classes."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._begun: set[type] = set()
        """Classes whose bodies are being read, or were: methods may refer to their own."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, type) and obj.__module__ == "__main__":
            body = [] if obj in self._begun else [obj.__bases__, *_body_of(obj)]
            self._begun.add(obj)
            return list, ([obj.__qualname__, *body],)
        return super().reducer_override(obj)

    def _reduce_code(self, code: types.CodeType) -> Any:
        plain = code.replace(co_filename="", co_firstlineno=1, co_linetable=b"")
        return self.dispatch_table[types.CodeType](plain)


def _body_of(cls: type) -> Iterator[tuple[str, Any]]:
    """What a class defines by itself: functions, and plain values."""
    for name, value in vars(cls).items():
        if name in _MADE_BY_PYTHON:
            continue
        parts = (value.fget, value.fset, value.fdel) if isinstance(value, property) else (value,)
        for part in parts:
            plain = getattr(part, "__func__", part)  # of a classmethod or a staticmethod
            if isinstance(plain, types.FunctionType | int | float | complex | str | bytes):
                yield name, plain
