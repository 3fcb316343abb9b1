"""``map``: the cell once per element of a sequence, results in order."""

from __future__ import annotations

from typing import ClassVar

from jupyter_ddl.protocol.verb import Capabilities, Items, Nouns, VerbSpec

__all__ = ["Map"]


class Map(VerbSpec, frozen=True, tag="map"):
    """The cell once per element of a captured sequence, results in order."""

    can: ClassVar[Capabilities] = Capabilities(has_trials=True, has_items=True, brings="items")
    nouns: ClassVar[Nouns] = Nouns(trial="item", trials="items")

    over: str
    """Captured name of the sequence."""
    element: str
    """Name that the cell sees the element under."""
    n_items: int

    @property
    def n_trials(self) -> int:
        return self.n_items

    @property
    def items(self) -> Items:
        return Items(self.over, self.element)
