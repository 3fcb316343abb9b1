"""Which captured values are others today than when a run was made that is resumed."""

from __future__ import annotations

import io
import pickle
import types
from typing import Any

from jupyter_ddl.cell.capture import CellPickler
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.ranks.payload import CapturedValues
from jupyter_ddl.store.blobs import digest_of
from jupyter_ddl.store.paths import blob_dirs

__all__ = ["changed_values"]


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
    _ContentPickler(stream, namespace, note).dump(value)  # type: ignore[arg-type]
    return digest_of(stream.getvalue() + "".join(buffers).encode())


class _ContentPickler(CellPickler):
    """Leaves out what differs each time: numbers of cells and lines, and identities of classes."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, type) and obj.__module__ == "__main__":
            return str, (obj.__qualname__,)
        return super().reducer_override(obj)

    def _reduce_code(self, code: types.CodeType) -> Any:
        plain = code.replace(co_filename="", co_firstlineno=1, co_linetable=b"")
        return self.dispatch_table[types.CodeType](plain)
