"""``map``: the cell once per element of a sequence, results in order."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Self

import msgspec

from jupyter_ddl.cell.draft import CellContext, RunDraft, draft_run
from jupyter_ddl.cell.names import read_names
from jupyter_ddl.cell.options import COMMON, MANY_TRIALS, CellOptions
from jupyter_ddl.cell.parts import CellParts
from jupyter_ddl.cell.source import read_source
from jupyter_ddl.errors import CaptureError, CellError, OptionError
from jupyter_ddl.grammar import Argument, Group, argument, identifier
from jupyter_ddl.nearest import did_you_mean
from jupyter_ddl.protocol.verb import Capabilities, Items, Nouns
from jupyter_ddl.verbs.base import Line, Verb

__all__ = ["Map"]


class Map(Verb, frozen=True, tag="map"):
    """The cell once per element of a captured sequence, results in order."""

    purpose: ClassVar[str] = "Run the cell once per element of a sequence; results come in order."
    arguments: ClassVar[tuple[Argument | Group, ...]] = (
        argument(
            "--over",
            nargs="+",
            metavar="WORD",
            help="NAME of a sequence, or ELEMENT in NAME; the element is called item by default",
            offers="sequences",
        ),
        *COMMON,
        *MANY_TRIALS,
    )
    can: ClassVar[Capabilities] = Capabilities(has_trials=True, has_items=True, brings="items")
    nouns: ClassVar[Nouns] = Nouns(trial="item", trials="items")

    over: str
    """Captured name of the sequence."""
    element: str = "item"
    """Name that the cell sees the element under."""
    n_items: int = 0
    """Of a run: the length of the sequence."""

    @classmethod
    def chosen(cls, values: Mapping[str, Any]) -> Line[Self]:
        words = " ".join(values.get("over") or ()).split()
        try:
            if len(words) == 1:
                return super().chosen({**values, "over": identifier(words[0])})
            if len(words) == 3 and words[1] == "in":
                element, over = identifier(words[0]), identifier(words[2])
                return super().chosen({**values, "over": over, "element": element})
        except argparse.ArgumentTypeError as error:
            raise OptionError(f"%%distribute map: --over: {error}") from None
        seen = " ".join(words) or "nothing"
        raise OptionError(
            f"%%distribute map: --over is {seen!r}; expected the name of a sequence (--over items) "
            f"or an element of it (--over x in items)"
        )

    def compile(
        self, cell: str, namespace: Mapping[str, Any], context: CellContext, options: CellOptions
    ) -> RunDraft:
        """A map over a sequence, which travels under its own name, as a list.

        Raises
        ------
        CellError
            Syntax, an undefined name, a missing module, a name to bring that the cell does not
            have, or a sequence that is missing, empty, unsized or would be used up.
        CaptureError
            A value that cannot be pickled, or is too large.
        """
        source = read_source(cell, context.cell_number)
        names = read_names(source.tree)
        items = _read_items(self.over, namespace)
        parts = CellParts.of(options, source, names, namespace, context, {self.over: items})
        element = (self.element,)
        captured, modules = parts.gather(known=element, injected=element, also=(self.over,))
        program, blobs, told = parts.program(captured, modules)
        notes = [*told]
        if self.element not in names.free:
            notes.append(f"the cell never reads {self.element!r}, the element of {self.over}")
        verb = msgspec.structs.replace(self, n_items=len(items))
        return draft_run(
            verb, options, program, blobs, max_failures=options.max_failures, notes=notes
        )

    def describe(self) -> Iterator[str]:
        yield f"Map: {self.n_items} items of {self.over}, each as {self.element}"

    # -- what everybody asks -------------------------------------------------------------------

    @property
    def n_trials(self) -> int:
        return self.n_items

    @property
    def items(self) -> Items:
        return Items(self.over, self.element)


def _read_items(over: str, namespace: Mapping[str, Any]) -> list[Any]:
    """Elements of the mapped sequence."""
    if over not in namespace:
        hint = did_you_mean(over, namespace)
        raise CellError(f"--over {over}: the notebook has no such name{hint}", name=over)
    value = namespace[over]
    kind = type(value).__name__
    if hasattr(value, "__next__"):
        raise CellError(
            f"--over {over} is a {kind}, which one pass would use up; "
            f"make a list first: {over} = list({over})"
        )
    if kind == "DataFrame":
        raise CellError(
            f"--over {over} is a DataFrame, whose elements are its column names; "
            f"map over {over}.to_dict('records') or a list of parts"
        )
    try:
        n_items = len(value)
    except TypeError:
        raise CellError(
            f"--over {over} is a {kind} without a length; expected a list or another sequence"
        ) from None
    if n_items == 0:
        raise CellError(f"--over {over} is empty, there is nothing to map over")
    try:
        # One more than it promises: an iteration that never ends must not hang here.
        items = list(itertools.islice(iter(value), n_items + 1))
    except Exception as error:  # iterating runs the value's own code
        raise CaptureError(
            f"--over {over}: reading its elements failed: {type(error).__name__}: {error}"
        ) from error
    if len(items) != n_items:
        raise CellError(
            f"--over {over} has length {n_items} but yields "
            f"{'more' if len(items) > n_items else len(items)} elements; pass a list"
        )
    return items
