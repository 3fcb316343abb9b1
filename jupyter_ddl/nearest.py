"""The nearest name, for messages about a name that does not exist."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["did_you_mean", "nearest"]


def nearest(word: str, candidates: Iterable[str]) -> str | None:
    """The candidate that looks most like ``word``, or None when none does."""
    names = sorted(set(candidates))
    found = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if found:
        return found[0]
    lowered = {name.lower(): name for name in names}
    found = difflib.get_close_matches(word.lower(), list(lowered), n=1, cutoff=0.6)
    return lowered[found[0]] if found else None


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """``"; did you mean 'x'?"``, or nothing when no candidate is near."""
    found = nearest(word, candidates)
    return f"; did you mean {found!r}?" if found else ""
