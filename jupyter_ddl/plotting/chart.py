"""What a plot shows: panels with axes and layers of marks, and nothing of how it is drawn."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from jupyter_ddl.formats import format_count, format_counted

__all__ = [
    "MAX_MARKS",
    "Chart",
    "Layer",
    "LayerKind",
    "Mark",
    "Panel",
    "Plot",
    "Scale",
    "is_number",
    "notes_of",
    "panels_of",
    "reason_if_empty",
    "thinned",
]

MAX_MARKS = 5000
"""Of one layer: more are thinned evenly, and the plot says so."""

LayerKind: TypeAlias = Literal["point", "line", "bar", "span"]


class Scale(msgspec.Struct, frozen=True):
    """One axis of a panel."""

    name: str
    kind: Literal["value", "log", "count", "category"] = "value"
    categories: tuple[str, ...] = ()
    """In order; only of a category."""
    hidden: bool = False
    """No ticks: places are shares, and labels tell what they stand for."""


class Mark(msgspec.Struct, frozen=True):
    """A value where it stands; the record's, not rounded."""

    x: float | str
    y: float | str
    x2: float | None = None
    """End of a span."""
    state: str = "complete"
    series: str = ""
    """A run; what has the same one has a colour."""
    line: str = ""
    """Marks of one line have the same name."""
    label: str = ""
    """What a pointer on it is told."""


class Layer(msgspec.Struct, frozen=True):
    """Marks of a kind, in the order in which they are drawn."""

    kind: LayerKind
    marks: tuple[Mark, ...]
    is_step: bool = False
    """A line that stays where it is until its next mark."""
    is_faint: bool = False


class Panel(msgspec.Struct, frozen=True):
    """One pair of axes."""

    x: Scale
    y: Scale
    layers: tuple[Layer, ...]
    title: str = ""
    end_labels: tuple[tuple[str, float, str], ...] = ()
    """Text beside an axis whose ticks are hidden: category, place from 0 to 1, text."""


class Chart(msgspec.Struct, frozen=True):
    """A whole plot."""

    title: str
    panels: tuple[Panel, ...]
    note: str = ""
    """What it leaves out, or why there is nothing to see."""
    series: tuple[str, ...] = ()
    """Runs in the order of their colours; one or none needs no legend."""
    text: str = ""
    """The same in a sentence."""


class Plot:
    """A plot that shows itself at the end of a cell.

    JupyterLab draws the Vega-Lite, which can be changed (:attr:`vega`, or in the menu of the
    drawing); whoever can't has the SVG.  Both have the values of the run's record.
    """

    def __init__(
        self,
        chart: Chart,
        to_vega: Callable[[Chart], dict[str, Any]],
        to_svg: Callable[[Chart], str],
    ) -> None:
        self.chart = chart
        self._to_vega = to_vega
        self._to_svg = to_svg

    @property
    def vega(self) -> dict[str, Any]:
        """The Vega-Lite specification with its data; a new one at each call."""
        return self._to_vega(self.chart)

    @property
    def svg(self) -> str:
        """The drawing as SVG."""
        return self._to_svg(self.chart)

    def save(self, path: str) -> None:
        """Write the SVG, or the Vega-Lite where ``path`` ends in ``.json``."""
        is_json = str(path).endswith(".json")
        text = msgspec.json.encode(self.vega).decode() if is_json else self.svg
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        bundle: dict[str, Any] = {"image/svg+xml": self.svg, "text/plain": repr(self)}
        if self.chart.panels:
            bundle["application/vnd.vegalite.v5+json"] = self.vega
        return bundle

    def __repr__(self) -> str:
        return ". ".join(filter(None, (self.chart.title, self.chart.text, self.chart.note)))


def is_number(value: object) -> bool:
    """Whether a value can stand on an axis of numbers."""
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and abs(value) <= 1e300
    )


def thinned(marks: Iterable[Mark]) -> tuple[Mark, ...]:
    """At most :data:`MAX_MARKS` of them, evenly, the last one included."""
    known = tuple(marks)
    if len(known) <= MAX_MARKS:
        return known
    last = MAX_MARKS - 1
    return tuple(known[at * (len(known) - 1) // last] for at in range(MAX_MARKS))


def panels_of(x: Scale, y: Scale, layers: Sequence[Layer]) -> tuple[Panel, ...]:
    """One panel, or none where there is nothing in it."""
    return (Panel(x, y, tuple(layers)),) if any(layer.marks for layer in layers) else ()


def reason_if_empty(layers: Iterable[Layer], reason: str) -> str:
    """``reason`` where no layer has a mark."""
    return "" if any(layer.marks for layer in layers) else reason


def notes_of(n_odd: int, n_more: int) -> list[str]:
    """What is left out: values that are no finite numbers, and marks of so many trials."""
    notes = [f"{format_counted(n_odd, 'value is', 'values are')} no finite number"] if n_odd else []
    return (
        [*notes, f"{format_count(MAX_MARKS)} of {format_count(n_more)} trials"] if n_more else notes
    )
