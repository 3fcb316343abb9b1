"""``jupyter ddl cluster …`` and ``jupyter ddl runs …``: the commands of the magics, as text.

The exit status is 0 when the command did what it says, 1 when it could not or found something
wrong, 2 when it was not understood.  Errors are one line on standard error.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jupyter_ddl.commands.face import Face, Printed
from jupyter_ddl.errors import JupyterDDLError, OptionError
from jupyter_ddl.grammar import Command, Grammar, HelpRequested
from jupyter_ddl.views.cell_output import say
from jupyter_ddl.views.drawing import for_terminal

if TYPE_CHECKING:
    from jupyter_ddl.client.run import Run

__all__ = ["main"]

_PROG = "jupyter ddl"
_PURPOSE = "Clusters and runs of your notebooks, from a terminal: the commands of the magics."
_MAGIC = re.compile(r"(?<!%)%(?=(?:cluster|runs)\b)")


class TerminalFace(Face):
    """Whoever has typed the command in a terminal, or a script."""

    is_notebook = False
    imports = None

    @property
    def folder(self) -> Path:
        return Path.cwd()

    @property
    def width(self) -> int:
        return shutil.get_terminal_size((100, 24)).columns - 1

    def say(self, text: str) -> None:
        super().say(_here(text))

    def agrees(self, question: str) -> bool:
        if not sys.stdin.isatty():
            return False
        return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")

    def watch(self, run: Run) -> None:
        from jupyter_ddl.client.session import session
        from jupyter_ddl.client.waiting import wait_for_run
        from jupyter_ddl.views.display import LiveDisplay, TerminalScreen

        display = LiveDisplay(TerminalScreen())
        try:
            last = wait_for_run(
                session(), run.id, None, display.offer, on_tick=display.tick, on_interrupt="leave"
            )
            run.raise_for_failure(last.decode())
        except KeyboardInterrupt:
            display.finish()
            self.say(f"Run {run.id} goes on: `%runs attach {run.id}` shows it again.")
        finally:
            display.finish()


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out one command line.

    Parameters
    ----------
    arguments : sequence of str, optional
        What follows ``jupyter ddl``; by default the process's own.

    Returns
    -------
    int
        The exit status.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        status = _carry_out(words)
        sys.stdout.flush()  # here, where a reader that has left is noticed
        return status
    except OptionError as error:
        return _fail(str(error), 2)
    except (JupyterDDLError, TimeoutError) as error:
        return _fail(str(error), 1)
    except BrokenPipeError:
        # The reader (`| head`) has left; Python must not complain of it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return _fail("interrupted", 1)


def _carry_out(words: list[str]) -> int:
    if words[:1] == ["--version"]:
        from jupyter_ddl import __version__

        sys.stdout.write(f"{__version__}\n")
        return 0
    from jupyter_ddl.commands.cluster import CLUSTER
    from jupyter_ddl.commands.runs import RUNS

    nouns = {"cluster": CLUSTER, "runs": RUNS}
    commands = [Command(noun, grammar.purpose) for noun, grammar in nouns.items()]
    try:
        noun = Grammar(_PROG, _PURPOSE, commands).choose(words or ["--help"]).name
        command, values = nouns[noun].in_terminal(f"{_PROG} {noun}").parse(words[1:])
    except HelpRequested as request:
        sys.stdout.write(f"{request.text}\n")
        return 0
    face = TerminalFace()
    answer = command.call(face, **values)
    for part in answer.parts:
        say(for_terminal(part)) if isinstance(part, Printed) else face.say(str(part))
    return 0 if answer.is_good else 1


def _here(text: str) -> str:
    """A message about what to type, in the words of a terminal."""
    return _MAGIC.sub(f"{_PROG} ", text)


def _fail(message: str, status: int) -> int:
    sys.stderr.write(f"{_PROG}: {_here(message).removeprefix(_PROG).lstrip(' :')}\n")
    return status
