"""What the settings of every library have in common."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from jupyter_ddl.formats import shortened

__all__ = ["Library", "put", "put_back"]

_SHOWN_CHARS = 40


class Library:
    """The settings of one library in this process, as plain values by name.

    Its methods are called only where ``module`` is imported.
    """

    name: ClassVar[str]
    module: ClassVar[str]
    restored: ClassVar[bool] = True
    """Whether ranks put back what a trial has changed (else something of theirs does already)."""

    @property
    def is_imported(self) -> bool:
        return self.module in sys.modules

    def values(self) -> dict[str, Any]:
        """All settings as they are."""
        raise NotImplementedError

    def defaults(self) -> Mapping[str, Any]:
        """All settings as the library has them when it is imported."""
        raise NotImplementedError

    def set(self, values: Mapping[str, Any]) -> None:
        """Put some settings into force; those that are None and have no default are removed."""
        raise NotImplementedError

    def waits_for(self, values: Mapping[str, Any]) -> frozenset[str]:
        """Packages without which some of these settings can't be made: :meth:`set` skips them."""
        return frozenset()

    def changed(self) -> dict[str, Any]:
        """The settings that are not as the library has them."""
        defaults = self.defaults()
        return {
            name: value
            for name, value in self.values().items()
            if name in defaults and _differs(value, defaults[name])
        }

    def left_out(self) -> Iterator[str]:
        """One sentence for each setting that was made and can't travel."""
        yield from ()

    def text(self, values: Mapping[str, Any]) -> str:
        """Settings for people."""
        return ", ".join(f"{name}={_short(value)}" for name, value in values.items())


def _differs(one: Any, other: Any) -> bool:
    """Whether two values of a setting are not equal, whatever they are."""
    if one is other:
        return False
    try:
        return bool(one != other)
    except Exception:  # noqa: BLE001 - comparing arrays, or objects of the user's, runs any code
        return True


def put(library: Library, values: Mapping[str, Any]) -> list[str]:
    """Put settings into force; what can't be is told by one sentence each, and nothing is lost."""
    try:
        library.set(values)
    except Exception:  # noqa: BLE001 - a library refuses a value in its own way
        return [text for name, value in values.items() for text in _put_one(library, name, value)]
    return []


def put_back(library: Library, before: Mapping[str, Any]) -> list[str]:
    """Undo what was changed since ``library.values()`` gave ``before``; see :func:`put`."""
    now = library.values()
    if now == before:
        return []
    changed = {name: value for name, value in before.items() if _differs(now.get(name), value)}
    return put(library, changed | dict.fromkeys(now.keys() - before.keys()))


def _put_one(library: Library, name: str, value: Any) -> Iterator[str]:
    try:
        library.set({name: value})
    except Exception as error:  # noqa: BLE001 - as above
        why = " ".join(str(error).split())[:200]
        yield (
            f"setting of the notebook not carried: {library.name} {library.text({name: value})} "
            f"can't be set here ({type(error).__name__}: {why}); it stays as it is"
        )


def _short(value: Any) -> str:
    return shortened(" ".join(repr(value).split()), _SHOWN_CHARS)
