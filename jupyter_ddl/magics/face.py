"""From a magic's line to a cell's output: what is typed, what commands ask, what is shown."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.display import display

from jupyter_ddl.commands.face import Face
from jupyter_ddl.errors import JupyterDDLError, OptionError
from jupyter_ddl.grammar import HelpRequested
from jupyter_ddl.magics.kernel import folder_of
from jupyter_ddl.views.cell_output import say

if TYPE_CHECKING:
    from jupyter_ddl.client.run import Run
    from jupyter_ddl.grammar import Grammar

__all__ = ["NotebookFace", "carry_out", "commands_of", "expand_line", "shown"]

_FIELD = re.compile(r"\{\{|\}\}|\{([^{}]+)\}|\$([A-Za-z_][A-Za-z0-9_]*)")
_MARK = "\x00"
"""Stands around a value's number while the line is split, so that no value is split."""


class NotebookFace(Face):
    """The kernel of ``shell``, in the cell that runs now."""

    is_notebook = True
    width = 100

    def __init__(self, shell: Any) -> None:
        self._shell = shell

    @property
    def folder(self) -> Path:
        return folder_of(self._shell)

    @property
    def imports(self) -> frozenset[str]:
        from jupyter_ddl.client.environment import last_imports
        from jupyter_ddl.environment.compare import modules_in

        return modules_in(self._shell.user_ns) | last_imports()

    def agrees(self, question: str) -> bool:
        from IPython.core.error import StdinNotImplementedError

        try:
            return bool(self._shell.ask_yes_no(f"{question} [y/N]", "n"))
        except StdinNotImplementedError:  # nbconvert, papermill
            return False

    def watch(self, run: Run) -> None:
        from jupyter_ddl.magics.live import watch

        self._shell.push({"_run": run})
        run.raise_for_failure(watch(run, on_interrupt="leave"))


def commands_of(noun: str) -> Grammar:
    """What may follow ``%cluster`` or ``%runs``; imports only what it needs."""
    if noun == "cluster":
        from jupyter_ddl.commands.cluster import CLUSTER

        return CLUSTER
    from jupyter_ddl.commands.runs import RUNS

    return RUNS


def carry_out(shell: Any, noun: str, line: str) -> None:
    """Carry out one line of ``%cluster`` or ``%runs``, and show its answer in the cell's output."""
    with shown():
        command, values = commands_of(noun).parse_line(expand_line(line, shell.user_ns))
        for part in command.call(NotebookFace(shell), **values).parts:
            if isinstance(part, str):
                say(part)
            else:
                display(part)


# -- what is typed ---------------------------------------------------------------------------------


def expand_line(line: str, namespace: Mapping[str, Any]) -> str:
    """The line with values in the places of expressions; each value stays one word.

    ``{{`` and ``}}`` stand for braces, and ``$name`` of no variable stays as it is.

    Raises
    ------
    OptionError
        An expression has no value; quotes it and says why.
    """
    found: list[str] = []

    def mark(match: re.Match[str]) -> str:
        text = _value(match, namespace)
        if text is None:
            return match.group()
        found.append(text)
        return f"{_MARK}{len(found) - 1}{_MARK}"

    marked = _FIELD.sub(mark, line.replace(_MARK, ""))
    if not found:
        return line
    try:
        words = shlex.split(marked)
    except ValueError:
        return line  # the parser of the line reports the open quote
    return shlex.join(_filled(word, found) for word in words)


def _filled(word: str, values: list[str]) -> str:
    return re.sub(f"{_MARK}(\\d+){_MARK}", lambda match: values[int(match.group(1))], word)


def _value(match: re.Match[str], namespace: Mapping[str, Any]) -> str | None:
    if match.group() in ("{{", "}}"):
        return match.group()[0]
    expression, name = match.groups()
    if name is not None:
        return str(namespace[name]) if name in namespace else None
    try:
        # The user's own expression, in the user's own kernel, as in any other magic.
        return str(eval(expression, dict(namespace)))
    except Exception as error:  # noqa: BLE001 - whatever the expression raises is its own answer
        raise OptionError(
            f"{match.group()} on the magic's line: {type(error).__name__}: {error}"
        ) from None


# -- what went wrong -------------------------------------------------------------------------------


@contextlib.contextmanager
def shown() -> Iterator[None]:
    """Turn what a magic raises into what the user should see.

    Help is printed, a wrong option is a ``UsageError``, and any other error of ours keeps its
    class and renders itself without our frames.  Bugs keep their whole traceback.
    """
    try:
        yield
    except HelpRequested as request:
        say(request.text)
    except OptionError as error:
        raise UsageError(str(error)) from None
    except JupyterDDLError as error:
        raise _self_rendering(error) from None
    except (TimeoutError, KeyboardInterrupt) as error:
        raise _self_rendering(error) from None


def _self_rendering(error: BaseException) -> BaseException:
    error.__context__ = None
    # IPython calls this instead of formatting the traceback.
    error.__dict__["_render_traceback_"] = _renderer(error)
    return error


def _renderer(error: BaseException) -> Callable[[], list[str]]:
    def render() -> list[str]:
        fields: dict[str, Any] = getattr(error, "fields", {})
        lines: list[str] = []
        if fields.get("log"):
            lines += [*str(fields["log"]).split("\n"), ""]
        if fields.get("traceback"):
            lines += [*str(fields["traceback"]).rstrip().split("\n"), ""]
        message = str(error)
        lines.append(f"{type(error).__name__}: {message}" if message else type(error).__name__)
        if fields.get("caret"):
            lines += [f"    {line}" for line in str(fields["caret"]).split("\n")]
        return lines

    return render
