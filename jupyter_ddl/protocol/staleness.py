"""How old gradients were when a parameter server used them."""

from __future__ import annotations

import msgspec

__all__ = ["MAX_STALENESS", "Staleness"]

MAX_STALENESS = 255
"""What is older is counted as this old."""


class Staleness(msgspec.Struct, frozen=True):
    """Of one server, since its round began."""

    server: int
    """Its rank."""
    counts: tuple[int, ...]
    """Gradients that were used, by the updates between their parameters and them, from 0."""
    n_dropped: int
    """Gradients that were older than ``--max-staleness``."""
