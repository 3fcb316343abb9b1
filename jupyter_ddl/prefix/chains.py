"""A pipeline as the planner sees it: steps by content, and parts within steps.  Pure."""

from __future__ import annotations

import msgspec

__all__ = ["Chain", "Link"]


class Link(msgspec.Struct, frozen=True):
    """One transformer of a chain."""

    key: bytes
    """Digest of the transformer with all its parameters: equal keys transform alike."""
    label: str
    """What the user calls it, e.g. ``vect (CountVectorizer)``."""
    parts: tuple[Chain, ...] = ()
    """Of a union or column transformer: its transformers, each fitted on the same input."""


class Chain(msgspec.Struct, frozen=True):
    """Transformers that are applied one after the other."""

    links: tuple[Link, ...]
    key: bytes = b""
    """Of a part: digest of what it is given of the common input (its columns)."""
    position: int = 0
    """Of a part: its position among the parts of its step."""
