"""What all trials of a run have reported, as columns: a number takes eight bytes and no object."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from math import nan

__all__ = ["ReportedMetrics"]

_N_METRICS = 16
"""The objective, and the others that were reported first."""
_MOST_NAMES = 1000


class ReportedMetrics:
    """Of each metric the last value, the least and the most, by the row of a trial.

    NaN where a trial has not reported it.  They are those of a trial's last attempt.
    """

    __slots__ = ("_columns", "_others")

    def __init__(self) -> None:
        # The last values, the least and the most; where no trial has reported it twice, one column.
        self._columns: dict[str, list[array[float]]] = {}
        self._others: set[str] = set()

    def __eq__(self, other: object) -> bool:
        # Bytes: one NaN is not equal to another one.
        return isinstance(other, ReportedMetrics) and self._told() == other._told()

    __hash__ = None  # type: ignore[assignment]

    def _told(self) -> dict[str, list[bytes]]:
        return {name: [each.tobytes() for each in found] for name, found in self._columns.items()}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._columns)

    @property
    def n_metrics(self) -> int:
        """Of all that were reported, with a column or without; counted up to some 1,000."""
        return len(self._columns) + len(self._others.difference(self._columns))

    def column(self, name: str, which: int, n_rows: int) -> array[float]:
        """A copy with as many rows; ``which``: 0 the last values, 1 the least, 2 the most."""
        known = self._columns[name]
        values = known[which if len(known) > 1 else 0]
        return values[:n_rows] + array("d", (nan,)) * max(0, n_rows - len(values))

    def begin(self, row: int) -> None:
        """Another attempt of a trial begins."""
        for found in self._columns.values():
            if row < len(found[0]):
                for each in found:
                    each[row] = nan

    def add(self, row: int, metrics: Mapping[str, float], objective: str) -> None:
        """A trial has reported."""
        columns = self._columns
        for name, value in metrics.items():
            found = columns.get(name)
            if found is None:
                if len(columns) >= _N_METRICS and name != objective:
                    if len(self._others) < _MOST_NAMES:
                        self._others.add(name)
                    continue
                found = columns[name] = [array("d")]
            last = found[0]
            if row >= len(last):
                room = array("d", (nan,)) * (row + 1 - len(last))
                for each in found:
                    each.extend(room)
            if len(found) == 1:
                before = last[row]
                if before != before or before == value:
                    last[row] = value
                    continue
                found += [last[:], last[:]]
            last[row] = value
            # NaN, which is there at first, is neither more nor less than anything.
            if value != value:
                continue
            _, least, most = found
            if not least[row] <= value:
                least[row] = value
            if not most[row] >= value:
                most[row] = value
