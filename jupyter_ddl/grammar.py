"""One grammar for a cell's first line, a line magic and a terminal command.

Commands and what may follow them are declared as data, in argparse's own words.  From that come the
parsed values, the refusal in one line with the nearest name, ``--help`` and what Tab offers.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import keyword
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NoReturn, TypeAlias

from jupyter_ddl.errors import OptionError
from jupyter_ddl.nearest import did_you_mean

__all__ = [
    "Argument",
    "Command",
    "Grammar",
    "Group",
    "HelpRequested",
    "Source",
    "argument",
    "count",
    "duration_s",
    "identifier",
    "names",
    "one_of",
    "size_bytes",
]

Source: TypeAlias = Literal[
    "metrics", "assigned", "names", "dicts", "sequences", "samplers", "runs", "clusters"
]
"""What only a face knows and Tab offers: keywords of ``report(…)`` in the cell, names that the cell
assigns, the notebook's names (all, or those of one kind), ids of runs, names of clusters."""

Offers: TypeAlias = Source | Callable[[], Iterable[str]]
Converter: TypeAlias = Callable[[str], Any]

_HELP = ("-h", "--help")
_NEGATIVE = re.compile(r"-\d[\d.]*[A-Za-z]+")
_LONG = re.compile(r"--[a-z-]+")


class HelpRequested(Exception):  # not an error: nothing went wrong
    """``--help`` was given.  ``text`` is to be shown, and nothing is to run."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


# -- declarations ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Argument:
    """An option or a word of a command: see :func:`argument`."""

    flags: tuple[str, ...]
    settings: Mapping[str, Any]
    offers: tuple[Offers, ...]

    @property
    def is_option(self) -> bool:
        return self.flags[0].startswith("-")

    @property
    def dest(self) -> str:
        """The name of its value."""
        named = self.settings.get("dest")
        long = [flag for flag in self.flags if flag.startswith("--")] or list(self.flags)
        return str(named or long[0].lstrip("-").replace("-", "_"))

    @property
    def takes_value(self) -> bool:
        return not str(self.settings.get("action", "")).startswith("store_")

    def values(self, sources: Mapping[str, Callable[[], Iterable[str]]]) -> tuple[str, ...]:
        """What Tab offers in its place."""
        kind = self.settings.get("type")
        found = list(kind.allowed) if isinstance(kind, _OneOf) else []
        for one in self.offers:
            found += sources.get(one, tuple)() if isinstance(one, str) else one()
        return tuple(found)


def argument(*flags: str, offers: Offers | tuple[Offers, ...] = (), **settings: Any) -> Argument:
    """Declare an option (``"-n", "--workers"``) or a word (``"name"``) of a command.

    Parameters
    ----------
    *flags, **settings
        As for :meth:`argparse.ArgumentParser.add_argument`; ``%`` in the help needs no escape.
    offers : str, callable or tuple of them, optional
        What Tab offers for its value, beside the choices of :func:`one_of`.
    """
    kind = settings.get("type")
    if isinstance(kind, _OneOf):
        settings.setdefault("metavar", "|".join(kind.allowed))
    if "help" in settings:
        settings["help"] = settings["help"].replace("%", "%%")
    return Argument(flags, settings, offers if isinstance(offers, tuple) else (offers,))


@dataclass(frozen=True, slots=True)
class Group:
    """Arguments below a title of their own in the help, or of which only one may be given."""

    arguments: tuple[Argument, ...]
    title: str = ""
    exclusive: bool = False
    required: bool = False
    """Of an exclusive group: one of them has to be given."""


@dataclass(frozen=True, slots=True)
class Command:
    """One word and what may follow it.

    Attributes
    ----------
    name, purpose : str
        The word, and one sentence for ``--help``.
    arguments : tuple
        What may follow it.
    call : callable
        Takes the values by name: makes options of them, or carries the command out.
    only_in_notebooks : bool
        It makes no sense where each line is a process of its own.
    more : callable, optional
        Further arguments, given its first word; raises :class:`OptionError` for a wrong one.
    elsewhere : callable
        What to say of an option that it does not have, if there is something to say.
    """

    name: str
    purpose: str
    arguments: tuple[Argument | Group, ...] = ()
    call: Callable[..., Any] = argparse.Namespace
    only_in_notebooks: bool = False
    more: Callable[[str], tuple[Argument | Group, ...]] | None = None
    elsewhere: Callable[[str], str] = lambda _: ""

    def given(self, words: Sequence[str]) -> Command:
        """The command with all arguments that it has for these words."""
        if self.more is None:
            return self
        word = next(_plain_words(words, self.options()), "")
        if not word:
            first = _word_at(self, 0)
            word = str(first.settings.get("default", "")) if first is not None else ""
        return replace(self, arguments=(*self.arguments, *self.more(word)), more=None)

    def options(self) -> dict[str, Argument]:
        """Its options by flag."""
        return {flag: each for each in self.each() if each.is_option for flag in each.flags}

    def each(self) -> Iterator[Argument]:
        """All arguments, also those in groups."""
        for one in self.arguments:
            yield from one.arguments if isinstance(one, Group) else (one,)


class Grammar:
    """The commands of one magic or program.

    Parameters
    ----------
    prog : str
        What users type before the command (``%cluster``).
    purpose : str
        One sentence for ``--help``.
    commands : iterable of Command
        In the order of ``--help``.
    bare : str, optional
        Command that is meant when none is given.
    noun : str
        What a command is called here.
    """

    def __init__(
        self,
        prog: str,
        purpose: str,
        commands: Iterable[Command],
        *,
        bare: str | None = None,
        noun: str = "command",
    ) -> None:
        self.prog = prog
        self.purpose = purpose
        self.commands = {command.name: command for command in commands}
        self._bare = bare
        self._noun = noun
        self._parsers: dict[str, _Parser] = {}

    def in_terminal(self, prog: str) -> Grammar:
        """The same commands after another word, without those that only notebooks have."""
        there = (each for each in self.commands.values() if not each.only_in_notebooks)
        return Grammar(prog, self.purpose, there, bare=self._bare, noun=self._noun)

    # -- lines ---------------------------------------------------------------------------------

    def parse_line(self, line: str) -> tuple[Command, dict[str, Any]]:
        """The command of a magic's line and its values; raises as :meth:`parse` does."""
        try:
            words = shlex.split(line)
        except ValueError as error:
            raise OptionError(f"{self.prog}: {str(error).lower()} in {line.strip()!r}") from None
        return self.parse(words)

    def parse(self, words: Sequence[str]) -> tuple[Command, dict[str, Any]]:
        """The command and its values, by name.

        Raises
        ------
        OptionError
            Unknown command or option, or a wrong value; one line, with the nearest name.
        HelpRequested
            For ``--help``; carries the text.
        """
        command, rest = self.choose(words), words[1:]
        command = command.given([word for word in rest if word not in _HELP])
        if any(word in _HELP for word in rest):  # whatever else is wrong with the line
            raise HelpRequested(self._parser(command).format_help().rstrip())
        parser = self._parser(command)
        for word in rest:
            flag, _, value = word.partition("=")
            if value == "--" and flag.startswith("-"):  # argparse takes it for no value at all
                parser.error(f"{flag}: expected one argument")
        found, unknown = parser.parse_known_args(_joined(rest))
        if unknown:
            raise self._refusal(command, unknown[0])
        return command, vars(found)

    def choose(self, words: Sequence[str]) -> Command:
        """The command that the first word names; raises as :meth:`parse` does."""
        name = words[0] if words else self._bare
        if name is None:
            raise OptionError(
                f"{self.prog} needs a {self._noun}: {self._names()}; --help explains them"
            )
        if name in (*_HELP, "help"):
            raise HelpRequested(self.help_text())
        if name not in self.commands:
            hint = did_you_mean(name, self.commands)
            raise OptionError(
                f"{self.prog}: unknown {self._noun} {name!r}; expected {self._names()}{hint}"
            )
        return self.commands[name]

    def help_text(self, name: str | None = None) -> str:
        """What ``--help`` shows: of all commands, or of one."""
        if name is not None:
            return self._parser(self.commands[name].given(())).format_help().rstrip()
        width = max(len(each) for each in self.commands)
        lines = [f"  {each.name:<{width}}  {each.purpose}" for each in self.commands.values()]
        noun = self._noun.upper()
        usage = f"usage: {self.prog} {noun} …      ({self.prog} {noun} --help explains one)"
        return "\n".join([usage, "", self.purpose, "", *lines])

    # -- Tab -----------------------------------------------------------------------------------

    def offers(
        self, words: Sequence[str], sources: Mapping[str, Callable[[], Iterable[str]]]
    ) -> tuple[str, ...]:
        """What could follow ``words``, of which the last is complete.

        Parameters
        ----------
        sources : mapping
            By :data:`Source`, what this face knows; called only where it is wanted.
        """
        if not words:
            return (*self.commands, "--help")
        command = self.commands.get(words[0])
        if command is None:
            return ()
        with contextlib.suppress(OptionError):  # the word is not complete, or not one
            command = command.given(words[1:])
        options = command.options()
        wanted = options.get(words[-1])
        if len(words) > 1 and wanted is not None and wanted.takes_value:
            return wanted.values(sources)
        flags = sorted((*options, *_HELP), key=lambda flag: (not flag.startswith("--"), flag))
        expected = _word_at(command, len(list(_plain_words(words[1:], options))))
        return (*(expected.values(sources) if expected is not None else ()), *flags)

    # -- inside --------------------------------------------------------------------------------

    def _names(self) -> str:
        *some, last = self.commands
        return f"{', '.join(some)} or {last}" if some else last

    def _refusal(self, command: Command, word: str) -> OptionError:
        line = f"{self.prog} {command.name}"
        if not word.startswith("-"):
            return OptionError(
                f"{line}: unexpected {word!r}; quote values that contain spaces, "
                f"--help lists what is expected"
            )
        flag = word.partition("=")[0]
        known = [flag for each in command.each() for flag in each.flags]
        hint = command.elsewhere(flag) or did_you_mean(flag, known) or "; --help lists the options"
        return OptionError(f"{line}: unknown option {flag!r}{hint}")

    def _parser(self, command: Command) -> _Parser:
        prog = f"{self.prog} {command.name}"
        if command is not self.commands[command.name]:
            return _parser(prog, command)  # with arguments that a word has brought
        if command.name not in self._parsers:
            self._parsers[command.name] = _parser(prog, command)
        return self._parsers[command.name]


class _Parser(argparse.ArgumentParser):
    """Raises instead of printing to stderr and ending the process."""

    def error(self, message: str) -> NoReturn:
        raise OptionError(f"{self.prog}: {message.removeprefix('argument ')}")


def _parser(prog: str, command: Command) -> _Parser:
    parser = _Parser(
        prog=prog,
        description=command.purpose,
        add_help=False,
        allow_abbrev=False,
        formatter_class=functools.partial(argparse.HelpFormatter, width=100, max_help_position=32),
    )
    for one in command.arguments:
        if isinstance(one, Argument):
            parser.add_argument(*one.flags, **one.settings)
            continue
        group = (
            parser.add_mutually_exclusive_group(required=one.required)
            if one.exclusive
            else parser.add_argument_group(one.title)
        )
        for each in one.arguments:
            group.add_argument(*each.flags, **each.settings)
    # Only for the text: it is looked for before anything is parsed.
    parser.add_argument(
        *_HELP, action="store_true", default=argparse.SUPPRESS, help="show this and run nothing"
    )
    return parser


def _joined(words: Sequence[str]) -> list[str]:
    """``--memory -4GB`` as ``--memory=-4GB``: a value that is refused as such, and no option."""
    joined: list[str] = []
    for word in words:
        if _NEGATIVE.fullmatch(word) and joined and _LONG.fullmatch(joined[-1]):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def _plain_words(words: Sequence[str], options: Mapping[str, Argument]) -> Iterator[str]:
    """Those that are neither options nor values of options; one that is not known takes a value."""
    is_value = False
    for word in words:
        if word.startswith("-"):
            is_value = word not in options or options[word].takes_value
            continue
        if not is_value:
            yield word
        is_value = False


def _word_at(command: Command, index: int) -> Argument | None:
    expected = [each for each in command.each() if not each.is_option]
    if index < len(expected):
        return expected[index]
    repeats = bool(expected) and expected[-1].settings.get("nargs") in ("*", "+")
    return expected[-1] if repeats else None


# -- values ----------------------------------------------------------------------------------------

_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {"B": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY_BYTES = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def duration_s(text: str) -> float:
    """Seconds in ``90``, ``90s``, ``5m``, ``2h``, ``1d`` or a sum of them such as ``1h30m``."""
    stripped = text.strip().lower()
    if re.fullmatch(r"\d+(\.\d+)?", stripped):
        total = float(stripped)
    elif re.fullmatch(r"(\d+(\.\d+)?[smhd])+", stripped):
        parts = re.findall(r"(\d+(?:\.\d+)?)([smhd])", stripped)
        total = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    else:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a duration; expected e.g. 90s, 5m, 2h or 1d"
        )
    if total <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration; it must be above 0")
    return total


def size_bytes(text: str) -> int:
    """Bytes in ``500000``, ``64MB`` or ``2GiB``."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?", text.strip(), re.IGNORECASE)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size; expected e.g. 500MB or 2GiB")
    number, unit, binary = match.groups()
    factor = (_BINARY_BYTES if binary else _BYTES).get(unit.upper() or "B", 1)
    n_bytes = int(float(number) * factor)
    if n_bytes <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size; it must be above 0")
    return n_bytes


def count(low: int, high: int | None = None) -> Callable[[str], int]:
    """Converter to a whole number of at least ``low`` (and at most ``high``)."""
    bounds = f"of at least {low}" if high is None else f"from {low} to {high}"

    def convert(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = None
        if number is None or number < low or (high is not None and number > high):
            raise argparse.ArgumentTypeError(f"{text!r}; expected a whole number {bounds}")
        return number

    return convert


@dataclass(frozen=True, slots=True)
class _OneOf:
    """Converter that lets only some words pass."""

    allowed: tuple[str, ...]

    def __call__(self, text: str) -> str:
        if text not in self.allowed:
            raise argparse.ArgumentTypeError(
                f"{text!r} is not a choice; expected {', '.join(self.allowed)}"
                f"{did_you_mean(text, self.allowed)}"
            )
        return text


def one_of(*allowed: str) -> Converter:
    """Converter that lets only ``allowed`` pass; Tab offers them, the help shows them."""
    return _OneOf(allowed)


def identifier(text: str) -> str:
    """A name that Python can bind."""
    name = text.strip()
    if not name.isidentifier() or keyword.iskeyword(name):
        raise argparse.ArgumentTypeError(f"{text!r} is not a Python name")
    return name


def patterns(text: str) -> tuple[str, ...]:
    """Patterns of file names (``*.pt``) separated by commas."""
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def names(text: str) -> tuple[str, ...]:
    """Names separated by commas."""
    return tuple(dict.fromkeys(identifier(part) for part in text.split(",") if part.strip()))
