"""What a verb owes the process that has the cell: its options, and how a cell becomes a run.

What everybody else asks of a run's verb stands in :mod:`jupyter_ddl.protocol.verb`.  A verb is one
struct: the options of its line are the fields that travel.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar

from jupyter_ddl.cell.draft import CellContext, RunDraft
from jupyter_ddl.cell.options import CellOptions
from jupyter_ddl.errors import OptionError, SpecError
from jupyter_ddl.grammar import Argument, Command, Grammar, Group
from jupyter_ddl.plugins import VERBS
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.protocol.space import ParamValue
from jupyter_ddl.protocol.verb import VerbSpec, load_verb

__all__ = ["Line", "Verb", "distribute_grammar", "find_verb", "parse_line"]

_NOT_FROM_PYTHON = ("out", "dry_run")

V = TypeVar("V", bound="Verb", covariant=True)


class Line(NamedTuple, Generic[V]):
    """What a first line, or a caller from Python, has chosen."""

    verb: V
    options: CellOptions


class Verb(VerbSpec, frozen=True, kw_only=True):
    """Base of all verbs.

    A package adds one by the entry point group ``jupyter_ddl.verbs``: a name, and a class derived
    from this one, whose tag is that name.  ``jupyter_ddl.testing.verbs`` has the tests that each
    one is to pass.
    """

    purpose: ClassVar[str]
    """One sentence for ``--help``."""
    arguments: ClassVar[tuple[Argument | Group, ...]]
    """What its line takes.  Values go by name to fields of the verb, others to the options of
    the cell."""

    @classmethod
    def of(cls, spec: RunSpec) -> Self:
        """The verb of a run that can be of no other.

        Raises
        ------
        SpecError
            It is.
        """
        if not isinstance(spec.verb, cls):
            raise SpecError(f"run {spec.run_id!r} is of {spec.verb.word!r}, not of {cls.__name__}")
        return spec.verb

    @classmethod
    def chosen(cls, values: Mapping[str, Any]) -> Line[Self]:
        """The verb and the options of its cell, from values by name.

        Raises
        ------
        OptionError
            Something is missing, or contradicts itself.
        """
        own = cls.__struct_fields__
        verb = cls(**{name: value for name, value in values.items() if name in own})
        rest = {name: value for name, value in values.items() if name not in own}
        return Line(verb, CellOptions(**rest))

    @classmethod
    def from_python(cls, given: Mapping[str, Any]) -> Line[Self]:
        """The same from keywords: names of the line's options with ``_`` for ``-``.

        Text is read as on the line, durations are seconds and sizes bytes.

        Raises
        ------
        OptionError
            One line, with the options that there are.
        """
        word = cls.__struct_config__.tag
        known = {_name_of(each): each for each in _each(cls.arguments)}
        values = {name: each.settings.get("default", _empty(each)) for name, each in known.items()}
        for name, value in given.items():
            if name not in known or name in _NOT_FROM_PYTHON:
                names = ", ".join(each for each in known if each not in _NOT_FROM_PYTHON)
                raise OptionError(f"there is no option {name!r}; known: {names}")
            read = known[name].settings.get("type")
            try:
                values[name] = read(value) if isinstance(value, str) and read else value
            except argparse.ArgumentTypeError as error:
                flag = known[name].flags[-1]
                raise OptionError(f"%%distribute {word}: {flag}: {error}") from None
        return cls.chosen(values)

    def compile(
        self, cell: str, namespace: Mapping[str, Any], context: CellContext, options: CellOptions
    ) -> RunDraft:
        """The run that a cell makes; all that can be refused is refused here.

        Parameters
        ----------
        cell
            What follows the magic's line.
        namespace
            The notebook's globals: the very dict, because its functions refer to it.

        Raises
        ------
        JupyterDDLError
            Why there can be no such run; nothing was started.
        """
        raise NotImplementedError

    def trial_cell(self, program: Program, params: Mapping[str, ParamValue], title: str) -> str:
        """A trial as a plain cell, below a comment with ``title``.

        Raises
        ------
        SpecError
            Trials of this verb differ by more than values that a cell could hold.
        """
        raise SpecError(f"a {self.nouns.trial} of {self.word} is no cell with values of its own")


def find_verb(word: str) -> type[Verb]:
    """A verb by its word.

    Raises
    ------
    SpecError
        There is none, or it has only what travels.
    """
    found = load_verb(word)
    if not issubclass(found, Verb):
        raise SpecError(f"verb {word!r} ({found.__qualname__}) is not a subclass of Verb")
    return found


def distribute_grammar() -> Grammar:
    """The lines of ``%%distribute``: every verb that is installed, the built-in ones first."""
    return _grammar(VERBS.names())


def parse_line(line: str) -> Line[Verb]:
    """What a magic's line, without the ``%%distribute``, has chosen.

    Parameters
    ----------
    line : str
        For example ``search --metric val_acc --trials 40``.

    Raises
    ------
    OptionError
        For an unknown verb or option or a wrong value; one line, with the nearest name.
    HelpRequested
        For ``--help``; carries the text.
    """
    word = next(iter(line.split(maxsplit=1)), "")
    # What is installed beside is read from hundreds of files: as long as the whole of a short cell.
    grammar = _grammar(tuple(VERBS.built_in)) if word in VERBS.built_in else distribute_grammar()
    command, values = grammar.parse_line(line)
    chosen: Line[Verb] = command.call(**values)
    return chosen


@functools.lru_cache(maxsize=4)
def _grammar(words: tuple[str, ...]) -> Grammar:
    return Grammar(
        "%%distribute",
        "Run this cell elsewhere; the verb says how.",
        [_command(word, find_verb(word)) for word in words],
        noun="verb",
    )


def _command(word: str, verb: type[Verb]) -> Command:
    return Command(
        word, verb.purpose, verb.arguments, lambda **values: verb.chosen(values), elsewhere=_owners
    )


def _owners(flag: str) -> str:
    """Which verbs have an option, where one that lacks it was given it."""
    verbs = {word: find_verb(word) for word in VERBS.names()}
    found = [
        word
        for word, verb in verbs.items()
        if any(flag in argument.flags for argument in _each(verb.arguments))
    ]
    if not found:
        return ""
    *some, last = found
    return f"; {', '.join(some)} and {last} have it" if some else f"; {last} has it"


def _each(arguments: tuple[Argument | Group, ...]) -> Iterator[Argument]:
    for one in arguments:
        yield from one.arguments if isinstance(one, Group) else (one,)


def _name_of(one: Argument) -> str:
    if "dest" in one.settings:
        return str(one.settings["dest"])
    long = next((flag for flag in one.flags if flag.startswith("--")), one.flags[0])
    return long.lstrip("-").replace("-", "_")


def _empty(one: Argument) -> Any:
    """What argparse has for an option that the line leaves out."""
    return {"store_true": False, "store_false": True}.get(str(one.settings.get("action")))
