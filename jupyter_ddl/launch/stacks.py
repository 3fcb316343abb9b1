"""Reads the stacks of a rank: where in the cell it is, and whether it waits for other ranks.  Pure.

The text is ``faulthandler``'s: one block per thread, the innermost frame first.
"""

from __future__ import annotations

import re

import msgspec

__all__ = ["Place", "read_place"]

_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<name>.*)$')
_MAIN_FRAME = ("rank_main.py", "execute_all")
"""The frame that only the main thread of a rank has."""
_COLLECTIVE_FILES = (
    "torch/distributed/",
    "torch/nn/parallel/distributed.py",
    "jupyter_ddl/ranks/group_votes.py",
)
_BACKWARD_FILES = ("torch/autograd/",)
_WRAPPERS = frozenset({"wrapper", "inner", "_fn", "decorate_context"})


class Place(msgspec.Struct, frozen=True):
    """What the main thread of a rank is at."""

    line: int | None = None
    """Innermost line of the cell; None: it is not in the cell."""
    function: str = ""
    """Innermost function, when it is not the cell itself."""
    waits_in: str = ""
    """The collective (``all_reduce``, ``barrier``, ``backward`` …), empty when it is in none."""


def read_place(stacks: str, filename: str = "In [") -> Place:
    """Where the main thread is.

    Parameters
    ----------
    filename : str
        How the cell's file name begins.
    """
    for block in stacks.split("\n\n"):
        frames = [found for text in block.splitlines() if (found := _FRAME.match(text))]
        if any(_is_main(frame) for frame in frames):
            return _place_of(frames, filename)
    return Place()


def _is_main(frame: re.Match[str]) -> bool:
    return frame["file"].endswith(_MAIN_FRAME[0]) and frame["name"] == _MAIN_FRAME[1]


def _place_of(frames: list[re.Match[str]], filename: str) -> Place:
    above: list[re.Match[str]] = []
    for frame in frames:
        if frame["file"].startswith(filename):
            function = above[0]["name"] if above else ""
            return Place(int(frame["line"]), function, _collective(above))
        above.append(frame)
    return Place(None, frames[0]["name"], _collective(frames))


def _collective(frames: list[re.Match[str]]) -> str:
    for frame in frames:
        if frame["name"] in _WRAPPERS:
            continue
        if any(part in frame["file"] for part in _COLLECTIVE_FILES):
            return str(frame["name"])
    if any(part in frame["file"] for frame in frames for part in _BACKWARD_FILES):
        # The collectives of a backward pass are started by C++: no Python frame names them.
        return "backward"
    return ""
