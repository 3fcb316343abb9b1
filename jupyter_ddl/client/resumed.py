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

_PYTHONS_OWN = frozenset({"__module__", "__qualname__", "__firstlineno__"})


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
            return bytes, (_class_text(obj).encode(),)
        return super().reducer_override(obj)

    def _reduce_code(self, code: types.CodeType) -> Any:
        plain = code.replace(co_filename="", co_firstlineno=1, co_linetable=b"")
        return self.dispatch_table[types.CodeType](plain)


def _class_text(cls: type) -> str:
    """What a class defines: its methods' code, and plain values."""
    bases = [
        _class_text(base) if base.__module__ == "__main__" else base.__qualname__
        for base in cls.__bases__
    ]
    own = sorted(vars(cls).items())  # cloudpickle keeps no order
    texts = [(name, _text(value)) for name, value in own if name not in _PYTHONS_OWN]
    body = [(name, text) for name, text in texts if text]
    return repr((cls.__qualname__, bases, body))


def _text(value: Any) -> str:
    """The same for what is equal, whatever it is stored as; empty for what is not compared."""
    if isinstance(value, property):
        return repr([_text(each) for each in (value.fget, value.fset, value.fdel)])
    value = getattr(value, "__func__", value)  # of a classmethod or a staticmethod
    if isinstance(value, types.FunctionType):
        return repr((_text(value.__code__), [_text(each) for each in value.__defaults__ or ()]))
    if isinstance(value, types.CodeType):
        constants = [_text(each) for each in value.co_consts]
        return repr((value.co_code, constants, value.co_names, value.co_varnames))
    if isinstance(value, tuple):
        return repr([_text(each) for each in value])
    is_plain = isinstance(value, int | float | complex | str | bytes | None)
    return repr(value) if is_plain else ""
