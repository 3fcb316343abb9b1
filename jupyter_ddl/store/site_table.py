"""A file of settings that a site gives to all of its users: a table in TOML or JSON."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from jupyter_ddl.errors import OptionError
from jupyter_ddl.nearest import did_you_mean

__all__ = ["SiteTable"]

_MAX_BYTES = 1 << 20
_LONGEST_SHOWN = 60


class SiteTable:
    """Reads one file; all that it refuses is one line with the file, the key and the value.

    Parameters
    ----------
    what : str
        What the file is, in a few words: ``the table of prices``.
    advice : str
        What to do about one that is refused.
    """

    def __init__(self, path: Path, what: str, advice: str) -> None:
        self._path = path
        self._what = what
        self._advice = advice

    def read(self) -> Mapping[str, Any]:
        """The whole table; JSON where the file's name ends so, else TOML.

        Raises
        ------
        OptionError
            It can't be read, or is no such table.
        """
        try:
            with self._path.open("rb") as file:
                data = file.read(_MAX_BYTES + 1)
            text = data.decode()
        except OSError as error:
            self.fail(f"can't be read: {error.strerror}")
        except UnicodeDecodeError:
            self.fail("is no text; expected TOML or JSON")
        if len(data) > _MAX_BYTES:
            self.fail(f"is larger than {_MAX_BYTES:,} bytes")
        is_json = self._path.suffix.lower() == ".json"
        try:
            found = json.loads(text) if is_json else tomllib.loads(text)
        except (ValueError, RecursionError) as error:
            self.fail(f"is no {'JSON' if is_json else 'TOML'}: {str(error).splitlines()[0]}")
        if not isinstance(found, dict):
            self.fail(f"holds {type(found).__name__}; expected a table")
        return found

    def mapping(self, key: str, value: Any, what: str = "a table") -> Mapping[str, Any]:
        """A table within the table; nothing where there is none."""
        if value is None:
            return {}
        if not isinstance(value, dict):
            self.refuse(key, value, what)
        return value

    def check_names(self, where: str, table: Mapping[str, Any], known: Iterable[str]) -> None:
        """Refuse keys that nobody reads: a price with a slip in its name would count as none."""
        known = tuple(known)
        for name, value in table.items():
            if name not in known:
                expected = f"{', '.join(known)}{did_you_mean(name, known)}"
                self.refuse(f"{where}{name}", value, f"only {expected}")

    def refuse(self, key: str, value: Any, expected: str) -> NoReturn:
        """Refuse the value of a key."""
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        shown = value if is_number else repr(str(value)[:_LONGEST_SHOWN])
        seen = "is missing" if value is None else f"is {shown}"
        self.fail(f"{key} {seen}; expected {expected}")

    def fail(self, why: str) -> NoReturn:
        """Refuse the file."""
        raise OptionError(f"{self._what} {self._path}: {why}; {self._advice}")
