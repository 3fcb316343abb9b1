"""``jupyter ddl …``: a text face over the client.

The exit status is 0 when the command did what it says, 1 when it could not, 2 when it was not
understood.  Errors are one line on standard error.
"""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Sequence

from jupyter_ddl.errors import JupyterDDLError, OptionError
from jupyter_ddl.grammar import HelpRequested

__all__ = ["main"]


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
        status = _run(words)
        sys.stdout.flush()  # here, where a reader that has left is noticed
        return status
    except OptionError as error:
        return _fail(str(error), 2)
    except JupyterDDLError as error:
        return _fail(str(error), 1)
    except TimeoutError as error:
        return _fail(str(error), 1)
    except BrokenPipeError:
        # The reader (`| head`) has left; Python must not complain of it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return _fail("interrupted", 1)


def _run(words: list[str]) -> int:
    if words[:1] == ["--version"]:
        from jupyter_ddl import __version__

        sys.stdout.write(f"{__version__}\n")
        return 0
    from jupyter_ddl.cli.actions import ACTIONS
    from jupyter_ddl.cli.grammar import GRAMMAR

    try:
        command, values = GRAMMAR.parse(words or ["--help"])
    except HelpRequested as request:
        sys.stdout.write(f"{request.text}\n")
        return 0
    return ACTIONS[command.name](Namespace(**values))


def _fail(message: str, status: int) -> int:
    sys.stderr.write(f"jupyter ddl: {message.removeprefix('jupyter ddl').lstrip(' :')}\n")
    return status
