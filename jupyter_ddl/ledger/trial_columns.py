"""Columns in which a run keeps its trials: a number takes one to eight bytes, and no object.

Each is read and written by rows, from 0.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from math import nan
from typing import Any, Generic, TypeAlias, TypeVar

from jupyter_ddl.protocol.space import ParamValue

__all__ = ["N_MORE", "Codes", "Floats", "Ints", "Params", "Plain"]

T = TypeVar("T")

N_MORE = 32
"""Columns grow by so many rows."""
_MOST_CODES = 4096
"""More different values than that are kept as they are."""
_SIGNED = {"b": "h", "h": "i", "i": "q"}
_UNSIGNED = {"B": "H", "H": "I"}
_LEAST = {"b": -(2**7), "h": -(2**15), "i": -(2**31), "q": -(2**63)}


class Floats:
    """Eight bytes each; NaN and nothing are the same."""

    __slots__ = ("data",)

    def __init__(self) -> None:
        self.data = array("d")

    def __getitem__(self, row: int) -> float | None:
        value = self.data[row]
        return None if value != value else value

    def __setitem__(self, row: int, value: float | None) -> None:
        self.data[row] = nan if value is None else value

    def extend(self, n_rows: int) -> None:
        """Room for as many rows altogether, and so in the other columns."""
        self.data.extend((nan,) * (n_rows - len(self.data)))


class Ints:
    """As many bytes each as the largest one needs; None: nothing."""

    __slots__ = ("_missing", "data")

    def __init__(self) -> None:
        self.data: Any = array("b")
        self._missing: int | None = _LEAST["b"]

    def __getitem__(self, row: int) -> int | None:
        value: int | None = self.data[row]
        return None if value == self._missing else value

    def __setitem__(self, row: int, value: int | None) -> None:
        try:
            self.data[row] = self._missing if value is None else value
            if value is None or value != self._missing:
                return
        except OverflowError:
            pass
        self._widen(row)
        self[row] = value

    def extend(self, n_rows: int) -> None:
        self.data.extend((self._missing,) * (n_rows - len(self.data)))

    def _widen(self, row: int) -> None:
        wider = _SIGNED.get(self.data.typecode)
        before, missing = self._missing, None if wider is None else _LEAST[wider]
        self.data[row] = before
        known = (missing if value == before else value for value in self.data)
        # What no machine counts with stays an object.
        self.data = list(known) if wider is None else array(wider, known)
        self._missing = missing


class Codes(Generic[T]):
    """Of few different values: one byte each, two of more than 256.

    Parameters
    ----------
    missing : T
        What stands where nothing is known.
    """

    __slots__ = ("_codes", "data", "values")

    def __init__(self, missing: T) -> None:
        self.values = [missing]
        """What codes stand for, by code."""
        # By type as well: True is 1, and 1.0 is 1.
        self._codes: dict[tuple[type, T], int] = {(type(missing), missing): 0}
        self.data: array[int] = array("B")

    def __getitem__(self, row: int) -> T:
        return self.values[self.data[row]]

    def __setitem__(self, row: int, value: T) -> None:
        key = type(value), value
        code = self._codes.get(key)
        if code is None:
            code = self._codes[key] = len(self.values)
            self.values.append(value)
            if code >= 256**self.data.itemsize:
                self.data = array(_UNSIGNED[self.data.typecode], self.data)
        self.data[row] = code

    def extend(self, n_rows: int) -> None:
        self.data.extend((0,) * (n_rows - len(self.data)))


class Plain:
    """Objects."""

    __slots__ = ("data",)

    def __init__(self) -> None:
        self.data: list[Any] = []

    def __getitem__(self, row: int) -> Any:
        return self.data[row]

    def __setitem__(self, row: int, value: object) -> None:
        self.data[row] = value

    def extend(self, n_rows: int) -> None:
        self.data.extend((None,) * (n_rows - len(self.data)))


_Kind: TypeAlias = Floats | Ints | Codes[Any] | Plain


class Params:
    """Parameters by name; all values of one share a column of the narrowest kind."""

    __slots__ = ("_columns",)

    def __init__(self) -> None:
        self._columns: dict[str, _Kind] = {}

    def __getitem__(self, name: str) -> _Kind:
        return self._columns[name]

    def of(self, row: int, names: Sequence[str]) -> list[ParamValue]:
        """Values of a row that has parameters of these names."""
        return [_value(self._columns[name], row) for name in names]

    def put(self, row: int, name: str, value: ParamValue) -> None:
        column = self._columns.get(name)
        if column is None or not _fits(column, value):
            column = self._columns[name] = _wider(column, value)
        if row >= len(column.data):
            column.extend(row + N_MORE)
        fitting: Any = column  # it holds values of this kind
        fitting[row] = value


def _value(column: _Kind, row: int) -> ParamValue:
    # Whoever has a parameter that is no number has this.
    return column.data[row] if isinstance(column, Floats) else column[row]


def _fits(column: _Kind, value: ParamValue) -> bool:
    kind = type(column)
    if kind is Floats:
        return type(value) is float
    if kind is Ints:
        return type(value) is int
    return not isinstance(column, Codes) or len(column.values) < _MOST_CODES


def _wider(column: _Kind | None, value: ParamValue) -> _Kind:
    """A column that takes the value as well; True, 1 and 1.0 stay what they are."""
    if column is None:
        return Floats() if type(value) is float else Ints() if type(value) is int else Codes(None)
    known = [_value(column, row) for row in range(len(column.data))]
    is_many = isinstance(column, Codes) or len(set(known)) >= _MOST_CODES
    wider: Plain | Codes[ParamValue] = Plain() if is_many else Codes(None)
    wider.extend(len(known))
    for row, each in enumerate(known):
        wider[row] = each
    return wider
