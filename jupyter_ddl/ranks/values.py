"""Values that a trial sends back: brought names, and the cell's own value in a map."""

from __future__ import annotations

import io
import sys
import types
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

import cloudpickle

from jupyter_ddl.errors import TrialError
from jupyter_ddl.protocol.space import ParamValue
from jupyter_ddl.ranks.metrics import shown
from jupyter_ddl.store.atomic import replacing
from jupyter_ddl.store.code_files import reduce_code
from jupyter_ddl.store.exceptions import reduce_exception

__all__ = ["ValuesError", "beats", "brought", "inline", "save_values"]

_INLINE_TEXT_BYTES = 1024
_INLINE_INTEGER_BITS = 63
"""msgpack, which carries events, has no larger integers."""
_NAMES_SHOWN = 12


class ValuesError(TrialError):
    """A brought value is missing or cannot be pickled."""


def beats(value: float, best: float | None, mode: str) -> bool:
    """Whether an objective is better than the best one known."""
    if best is None:
        return True
    return value > best if mode == "max" else value < best


def brought(
    names: Iterable[str], namespace: Mapping[str, Any], first_names: set[str]
) -> dict[str, Any]:
    """Collect the brought names from a finished trial's namespace.

    Raises
    ------
    ValuesError
        A name is not there; the message shows which names the cell made.
    """
    found = {}
    for name in names:
        if name not in namespace:
            made = [each for each in namespace if each not in first_names and each[:2] != "__"]
            seen = ", ".join(made[:_NAMES_SHOWN]) or "none"
            raise ValuesError(
                f"brought value {name!r} does not exist at the end of the cell; names seen: {seen}",
                name=name,
            )
        found[name] = namespace[name]
    return found


def inline(value: Any) -> tuple[bool, ParamValue]:
    """Whether a value is small and plain enough to travel inside an event, and its plain form."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.generic):
        value = value.item()
    kind = type(value)
    if value is None or kind is bool or kind is float:
        return True, value
    if kind is int and value.bit_length() <= _INLINE_INTEGER_BITS:
        return True, value
    if kind is str and _is_short_text(value):
        return True, value
    return False, None


def _is_short_text(text: str) -> bool:
    try:
        return len(text) <= _INLINE_TEXT_BYTES and len(text.encode()) <= _INLINE_TEXT_BYTES
    except UnicodeEncodeError:  # a lone surrogate cannot travel in an event
        return False


def save_values(values: Mapping[str, Any], path: Path) -> None:
    """Pickle ``{name: value}``, whole or not at all.

    Classes and functions of the cell go by value; tensors on a device go as copies in main
    memory, and the originals stay where they are.

    Raises
    ------
    ValuesError
        Naming the first value that cannot be pickled.
    OSError
        The file cannot be written.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with replacing(path, is_synced=True) as file:
        try:
            _Pickler(file).dump(dict(values))
        except OSError:
            raise
        except Exception as error:
            raise _culprit(values, error) from error


class _Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]  # cloudpickle has no types
    """Pickles tensors from main memory, and only the part of a storage that they show."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(file, protocol=5)
        self._torch = sys.modules.get("torch")

    def reducer_override(self, obj: Any) -> Any:
        torch = self._torch
        if torch is not None and isinstance(obj, torch.nn.parallel.DistributedDataParallel):
            return _itself, (obj.module,)  # the notebook has no process group to unpickle it in
        if torch is not None and isinstance(obj, torch.Tensor) and obj.layout == torch.strided:
            moved = obj.detach().cpu()
            if moved.untyped_storage().nbytes() > moved.numel() * moved.element_size():
                moved = moved.clone()
            if moved.data_ptr() != obj.data_ptr():
                if isinstance(obj, torch.nn.Parameter):
                    moved = torch.nn.Parameter(moved, obj.requires_grad)
                else:
                    moved.requires_grad_(obj.requires_grad)
                return moved.__reduce_ex__(5)
        if isinstance(obj, types.CodeType):
            return reduce_code(obj)
        return reduce_exception(obj) or super().reducer_override(obj)


def _itself(value: Any) -> Any:
    return value


def _culprit(values: Mapping[str, Any], error: Exception) -> ValuesError:
    for name, value in values.items():
        try:
            _Pickler(io.BytesIO()).dump(value)
        except Exception as own:  # noqa: BLE001 - pickling runs the user's code
            return _unpicklable(name, value, own)
    return _unpicklable(", ".join(values), values, error)


def _unpicklable(name: str, value: Any, error: Exception) -> ValuesError:
    return ValuesError(
        f"brought value {name!r} is {shown(value)} ({type(value).__name__}), which cannot be "
        f"pickled: {error}; bring something picklable made from it",
        name=name,
    )
