"""Commands with options in one line: parsed, refused with the nearest name, listed for Tab.

``%cluster``, ``%runs`` and the terminal share it, so that one word means one thing everywhere.
"""

from __future__ import annotations

import argparse
import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

from jupyter_ddl.cell.options import HelpRequested
from jupyter_ddl.errors import OptionError
from jupyter_ddl.nearest import did_you_mean

__all__ = ["Command", "Grammar"]

_HELP_WORDS = ("-h", "--help", "help")
_NEGATIVE = re.compile(r"-\d[\d.]*[A-Za-z]+")
_OPTION = re.compile(r"--[a-z-]+")


@dataclass(frozen=True)
class Command:
    """One word and what may follow it.

    Attributes
    ----------
    name : str
        The word.
    purpose : str
        One sentence for ``--help``.
    add : callable
        Adds the options to a parser.
    """

    name: str
    purpose: str
    add: Callable[[argparse.ArgumentParser], None] = lambda _: None


class Grammar:
    """The commands of one magic or program.

    Parameters
    ----------
    prog : str
        What users type before the command (``%cluster``).
    purpose : str
        One sentence for ``--help``.
    commands : sequence of Command
        In the order of ``--help``.
    bare : str, optional
        Command that is meant when none is given.
    """

    def __init__(
        self,
        prog: str,
        purpose: str,
        commands: Sequence[Command],
        *,
        bare: str | None = None,
    ) -> None:
        self.prog = prog
        self.purpose = purpose
        self.commands = {command.name: command for command in commands}
        self._bare = bare

    def parse(self, words: Sequence[str]) -> tuple[str, argparse.Namespace]:
        """The command and its options.

        Raises
        ------
        OptionError
            Unknown command or option, or a wrong value; one line, with the nearest name.
        HelpRequested
            For ``--help``; carries the text.
        """
        if not words and self._bare is not None:
            return self._bare, self._parser(self._bare).parse_args([])
        name = words[0] if words else ""
        if name in _HELP_WORDS:
            raise HelpRequested(self.help_text())
        if name not in self.commands:
            expected = ", ".join(self.commands)
            hint = did_you_mean(name, self.commands)
            seen = f"unknown command {name!r}" if name else "no command was given"
            raise OptionError(f"{self.prog}: {seen}; expected {expected}{hint}")
        return name, self._options(name, words[1:])

    def flags(self, name: str) -> tuple[str, ...]:
        """Options of a command that are shown in its help, for completion."""
        if name not in self.commands:
            return ()
        shown = [
            action for action in self._parser(name)._actions if action.help != argparse.SUPPRESS
        ]
        return tuple(flag for action in shown for flag in action.option_strings)

    def help_text(self) -> str:
        """What ``--help`` shows."""
        width = max(len(name) for name in self.commands)
        lines = [f"  {each.name:<{width}}  {each.purpose}" for each in self.commands.values()]
        usage = f"usage: {self.prog} COMMAND …      ({self.prog} COMMAND --help explains one)"
        return "\n".join([usage, "", self.purpose, "", *lines])

    def _options(self, name: str, rest: Sequence[str]) -> argparse.Namespace:
        found, unknown = self._parser(name).parse_known_args(list(rest))
        if found.help:
            raise HelpRequested(self._parser(name).format_help().rstrip())
        if unknown:
            word = unknown[0].partition("=")[0]
            if not word.startswith("-"):
                raise OptionError(f"{self.prog} {name}: unexpected {word!r}; --help explains it")
            hint = did_you_mean(word, self.flags(name)) or "; --help lists the options"
            raise OptionError(f"{self.prog} {name}: unknown option {word!r}{hint}")
        return found

    @functools.cache  # noqa: B019 - grammars are made once and live as long as the process
    def _parser(self, name: str) -> argparse.ArgumentParser:
        command = self.commands[name]
        parser = _Parser(
            prog=f"{self.prog} {name}",
            description=command.purpose,
            add_help=False,
            allow_abbrev=False,
            formatter_class=functools.partial(argparse.HelpFormatter, width=100),
        )
        command.add(parser)
        parser.add_argument("-h", "--help", action="store_true", help="show this and do nothing")
        return parser


class _Parser(argparse.ArgumentParser):
    """Raises instead of printing and ending the process; help is asked for before all else."""

    def error(self, message: str) -> NoReturn:
        raise OptionError(f"{self.prog}: {message.removeprefix('argument ')}")

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        # `stop --help` must not complain about a run id that is missing.
        if args and any(word in ("-h", "--help") for word in args):
            return argparse.Namespace(help=True), []
        return super().parse_known_args(None if args is None else _joined(args), namespace)


def _joined(words: Sequence[str]) -> list[str]:
    """``--memory -4GB`` as ``--memory=-4GB``: a value that is refused as such, and no option."""
    joined: list[str] = []
    for word in words:
        if _NEGATIVE.fullmatch(word) and joined and _OPTION.fullmatch(joined[-1]):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined
