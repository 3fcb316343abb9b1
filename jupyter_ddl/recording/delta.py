"""What changed between two JSON values, so that hundreds of pictures fit into one file.

``views/live/film.js`` applies it.  A patch is ``[value]`` (it is this now), ``[]`` (a key that is
gone), or an object: of a dictionary, patches by key; of a list, patches by index, with ``-`` for
how many go from the front first, and ``+`` for those that come behind.
"""

from __future__ import annotations

from typing import Any

__all__ = ["difference"]

_MAX_SHIFT = 8


def difference(old: Any, new: Any) -> Any:
    """The patch that turns ``old`` into ``new``; None when they are equal.

    Both are made of dictionaries with text as keys, lists, text, numbers, booleans and None.
    """
    if old is new or (old == new and type(old) is type(new)):
        return None
    if isinstance(old, dict) and isinstance(new, dict):
        return _of_dicts(old, new)
    if isinstance(old, list) and isinstance(new, list) and old and new:
        return _of_lists(old, new)
    return [new]


def _of_dicts(old: dict[str, Any], new: dict[str, Any]) -> Any:
    patch: dict[str, Any] = {key: [] for key in old if key not in new}
    for key, value in new.items():
        change = difference(old[key], value) if key in old else [value]
        if change is not None:
            patch[key] = change
    return patch or None


def _of_lists(old: list[Any], new: list[Any]) -> Any:
    if len(old) == len(new):
        changes = [difference(a, b) for a, b in zip(old, new, strict=True)]
        patch = {str(n): change for n, change in enumerate(changes) if change is not None}
        if not patch:
            return None
        if 2 * len(patch) <= len(new) or isinstance(new[0], dict):
            return patch
    for shift in range(min(len(old), _MAX_SHIFT)):
        kept = len(old) - shift
        if kept <= len(new) and old[shift:] == new[:kept]:
            slid: dict[str, Any] = {}
            if shift:
                slid["-"] = shift
            if new[kept:]:
                slid["+"] = new[kept:]
            return slid
    return [new]
