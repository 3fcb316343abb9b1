"""``map``: the cell once per element of a sequence, results in order."""

from __future__ import annotations

import argparse
import ast
import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Self

import msgspec

from jupyter_ddl.cell.draft import CellContext, RunDraft, draft_run
from jupyter_ddl.cell.names import read_names
from jupyter_ddl.cell.options import COMMON, MANY_TRIALS, PROFILE, CellOptions
from jupyter_ddl.cell.program import CellParts
from jupyter_ddl.cell.source import read_source
from jupyter_ddl.errors import CaptureError, CellError, OptionError
from jupyter_ddl.grammar import Argument, Group, argument, identifier
from jupyter_ddl.nearest import did_you_mean
from jupyter_ddl.protocol.verb import Capabilities, Items, Nouns
from jupyter_ddl.verbs.base import Line, Verb

__all__ = ["Map"]

_MOST_YIELDED = 1_000_000
"""A generator that never ends must not hang here."""


class Map(Verb, frozen=True, tag="map"):
    """The cell once per element of a captured sequence, results in order."""

    purpose: ClassVar[str] = "Run the cell once per element of a sequence; results come in order."
    arguments: ClassVar[tuple[Argument | Group, ...]] = (
        argument(
            "--over",
            nargs="+",
            metavar="WORD",
            help="NAME of a sequence, or ELEMENT in NAME (or A, B in NAME), or in an expression "
            "such as range(40); the element is called item by default",
            offers="sequences",
        ),
        *COMMON,
        PROFILE,
        *MANY_TRIALS,
    )
    can: ClassVar[Capabilities] = Capabilities(has_trials=True, has_items=True, brings="items")
    nouns: ClassVar[Nouns] = Nouns(trial="item", trials="items")

    over: str
    """Captured name of the sequence, or the expression that it came from."""
    element: str = "item"
    """Name that the cell sees the element under, or several, divided by commas."""
    n_items: int = 0
    """Of a run: the length of the sequence."""

    @classmethod
    def chosen(cls, values: Mapping[str, Any]) -> Line[Self]:
        text = " ".join(" ".join(values.get("over") or ()).split())
        try:
            element, over = _targets(text)
            if not over.isidentifier():
                ast.parse(over, mode="eval")
        except argparse.ArgumentTypeError as error:
            raise OptionError(f"%%distribute map: --over: {error}") from None
        except (SyntaxError, ValueError):
            raise OptionError(
                f"%%distribute map: --over is {text or 'nothing'!r}; expected a sequence (--over "
                f"items, --over range(40)) or an element of it (--over x in items, --over a, b in "
                f"pairs)"
            ) from None
        named = {"element": element} if element else {}
        return super().chosen({**values, "over": over, **named})

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
        source = read_source(cell, context.cell_number, namespace)
        names = read_names(source.tree)
        items = _read_items(self.over, namespace)
        parts = CellParts.of(options, source, names, namespace, context, {self.over: items})
        element = self.items.names
        for number, item in enumerate(items if self.items.is_unpacked else ()):
            _check_unpacks(self.over, self.items, number, item)
        captured, modules = parts.gather(known=element, injected=element, also=(self.over,))
        program, blobs, told = parts.program(captured, modules)
        notes = [*told]
        if names.free.keys().isdisjoint(element):
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


def _targets(text: str) -> tuple[str, str]:
    """What comes before and behind ``in``, as a comprehension reads it; nothing before without."""
    named = re.fullmatch(r"(.+?) in (.+)", text)
    if named is None:
        return "", text
    target, over = named.groups()
    for each in (over, f"({over})"):
        try:
            tree: Any = ast.parse(f"[0 for {target} in {each}]", mode="eval")
        except SyntaxError:
            continue
        loop, *more = tree.body.generators
        if more or loop.is_async:
            raise argparse.ArgumentTypeError(f"{text!r} has several loops; make a list first")
        parts = loop.target.elts if isinstance(loop.target, ast.Tuple) else [loop.target]
        element = ", ".join(identifier(ast.unparse(part)) for part in parts)
        if isinstance(loop.target, ast.Tuple) and len(parts) == 1:
            element += ","
        return element, f"[({element}) for {target} in {over}]" if loop.ifs else over
    return identifier(target), over


def _check_unpacks(over: str, items: Items, number: int, item: Any) -> None:
    try:
        n_values = len(tuple(item))
    except Exception as error:  # iterating runs the value's own code
        raise CellError(
            f"--over {items.element} in {over}: element {number} is a {type(item).__name__}, which "
            f"is not {len(items.names)} values ({type(error).__name__}: {error})"
        ) from error
    if n_values != len(items.names):
        raise CellError(
            f"--over {items.element} in {over}: element {number} has {n_values} values, "
            f"{len(items.names)} were expected"
        )


def _value(over: str, namespace: Mapping[str, Any]) -> Any:
    if over in namespace:
        return namespace[over]
    if over.isidentifier():
        hint = did_you_mean(over, namespace)
        raise CellError(f"--over {over}: the notebook has no such name{hint}", name=over)
    try:
        # The user's own line, in the user's own kernel, as a cell with it would do.
        return eval(over, dict(namespace))
    except Exception as error:
        raise CellError(
            f"--over {over}: {type(error).__name__}: {error}; expected a sequence (a line takes "
            f"quotes away: put one that has some into a variable, or into quotes as a whole)"
        ) from error


def _read_items(over: str, namespace: Mapping[str, Any]) -> list[Any]:
    """Elements of the mapped sequence."""
    value = _value(over, namespace)
    kind = type(value).__name__
    if hasattr(value, "__next__"):
        if _is_call(over):  # the line has made it: nobody else wants what it yields
            return _drained(over, value)
        raise CellError(
            f"--over {over} is a {kind}, which one pass would use up; make a list first: "
            + (f"{over} = list({over})" if over.isidentifier() else f"--over list({over})")
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
        raise _empty(over)
    try:
        # One more than it promises: an iteration that never ends must not hang here.
        items = list(itertools.islice(iter(value), n_items + 1))
    except Exception as error:  # iterating runs the value's own code
        raise _unreadable(over, error) from error
    if len(items) != n_items:
        raise CellError(
            f"--over {over} has length {n_items} but yields "
            f"{'more' if len(items) > n_items else len(items)} elements; pass a list"
        )
    return items


def _is_call(over: str) -> bool:
    return isinstance(ast.parse(over, mode="eval").body, ast.Call)


def _drained(over: str, value: Iterator[Any]) -> list[Any]:
    try:
        items = list(itertools.islice(value, _MOST_YIELDED + 1))
    except Exception as error:  # iterating runs the value's own code
        raise _unreadable(over, error) from error
    if not items:
        raise _empty(over)
    if len(items) > _MOST_YIELDED:
        raise CellError(f"--over {over} yields more than {_MOST_YIELDED:,} elements; pass a list")
    return items


def _empty(over: str) -> CellError:
    return CellError(f"--over {over} is empty, there is nothing to map over")


def _unreadable(over: str, error: Exception) -> CaptureError:
    return CaptureError(
        f"--over {over}: reading its elements failed: {type(error).__name__}: {error}"
    )
