"""The notebook's settings as they travel: a small blob, and what of it may be told."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import cloudpickle
import msgspec

from jupyter_ddl.formats import format_bytes
from jupyter_ddl.protocol.program import LibrarySettings, Settings
from jupyter_ddl.settings import LIBRARIES, Library
from jupyter_ddl.store.blobs import digest_of

__all__ = ["CarriedSettings", "read_settings"]

_LIMIT_BYTES = 1024 * 1024
"""Of one library's settings: a formatter that refers to a table must not take the table along."""


@dataclass(frozen=True, slots=True)
class CarriedSettings:
    """Settings of this process, ready to be stored.

    Attributes
    ----------
    settings : Settings or None
        What a program has of them; None when everything is as the libraries have it.
    notes : tuple of str
        One sentence for each setting that can't travel.
    """

    settings: Settings | None = None
    payload: bytes = b""
    notes: tuple[str, ...] = ()

    @property
    def blobs(self) -> dict[str, bytes | memoryview]:
        return {} if self.settings is None else {self.settings.blob: self.payload}


def read_settings(libraries: Iterable[Library] | None = None) -> CarriedSettings:
    """What was set in this process in libraries that it has imported.

    Whatever a library or a value of the user's does meanwhile, the cell can be sent.
    """
    contents: dict[str, bytes] = {}
    carried: list[LibrarySettings] = []
    notes: list[str] = []
    for library in LIBRARIES if libraries is None else libraries:
        if not library.is_imported:
            continue
        try:
            changed = library.changed()
            notes += [f"not carried to ranks: {text}" for text in library.left_out()]
        except Exception as error:  # noqa: BLE001 - another version may have it elsewhere
            why = f"{type(error).__name__}: {error}"
            notes.append(f"not carried to ranks: settings of {library.name}, not readable ({why})")
            continue
        if changed:
            data = _pickled(library, changed, notes)
            if changed:
                contents[library.name] = data
                carried.append(LibrarySettings(library.name, library.text(changed)))
    if not carried:
        return CarriedSettings(notes=tuple(notes))
    payload = msgspec.msgpack.encode(contents)
    settings = Settings(digest_of(payload), tuple(carried))
    return CarriedSettings(settings, payload, tuple(notes))


def _pickled(library: Library, changed: dict[str, Any], notes: list[str]) -> bytes:
    """The settings as ranks read them; those that can't be pickled are told and taken out."""
    with contextlib.suppress(Exception):  # pickling runs code of the value's own
        return _dumps(changed)
    for name, value in list(changed.items()):
        try:
            _dumps({name: value})
        except Exception as error:  # noqa: BLE001 - as above
            why = " ".join(str(error).split())[:200]
            notes.append(
                f"not carried to ranks: {library.name} {library.text({name: value})} ({why}); "
                f"set it inside the cell"
            )
            del changed[name]
    return _dumps(changed)


def _dumps(values: Mapping[str, Any]) -> bytes:
    stream = _Bounded()
    cloudpickle.Pickler(stream, protocol=5).dump(values)
    return stream.getvalue()


class _Bounded(io.BytesIO):
    def write(self, data: Any) -> int:
        if self.tell() + memoryview(data).nbytes > _LIMIT_BYTES:
            raise ValueError(f"it is larger than {format_bytes(_LIMIT_BYTES)}")
        return super().write(data)
