"""Which pieces a program needs: those it uses, and what they use in turn."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable
from importlib.resources import files
from typing import NamedTuple

from jupyter_ddl.cell.names import bound_names, global_reads

__all__ = ["PUBLIC", "Pieces", "collect"]

_GIVEN = frozenset({"_OUTPUT"})
"""Set by each program itself."""


class Pieces(NamedTuple):
    """What a program has in place of our functions.

    Attributes
    ----------
    imports : tuple of str
        Statements.
    texts : tuple of str
        Definitions in the order of the file.
    names : frozenset of str
        What both bind.
    """

    imports: tuple[str, ...]
    texts: tuple[str, ...]
    names: frozenset[str]


class _Piece(NamedTuple):
    text: str
    is_import: bool
    reads: frozenset[str]


def collect(names: Iterable[str]) -> Pieces:
    """The pieces behind names, with all that they need."""
    known = _all()
    wanted: set[str] = set()
    waiting = [name for name in names if name in known]
    while waiting:
        name = waiting.pop()
        if name not in wanted:
            wanted.add(name)
            waiting += [each for each in known[name].reads if each in known]
    chosen = dict.fromkeys(piece for name, piece in known.items() if name in wanted)
    return Pieces(
        tuple(piece.text for piece in chosen if piece.is_import),
        tuple(piece.text for piece in chosen if not piece.is_import),
        frozenset(wanted),
    )


@functools.cache
def _all() -> dict[str, _Piece]:
    text = files("jupyter_ddl.standalone").joinpath("pieces.py").read_text(encoding="utf-8")
    lines = text.splitlines()
    found: dict[str, _Piece] = {}
    for node in ast.parse(text).body:
        is_import = isinstance(node, ast.Import | ast.ImportFrom)
        if isinstance(node, ast.Expr) or "__future__" in ast.unparse(node):
            continue
        own = "\n".join(lines[node.lineno - 1 : node.end_lineno])
        own = own.split("  # noqa")[0].replace("  # type: ignore[misc]", "")
        reads = frozenset(read.name for read in global_reads([node]))
        for name, _ in bound_names([node]):
            if name not in _GIVEN:
                found[name] = _Piece(own, is_import, reads)
    return found


PUBLIC = frozenset(
    {"report", "checkpoint", "resume", "prepare", "rank", "world_size", "local_rank", "device"}
    | {"log", "display", "get_ipython", "uniform", "loguniform", "randint", "choice"}
)
"""Names of ours that programs can have."""
