"""Errors as a notebook shows them: one line, or the user's own lines from the rank."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from IPython.core.error import UsageError

from jupyter_ddl.errors import JupyterDDLError, OptionError
from jupyter_ddl.grammar import HelpRequested
from jupyter_ddl.magics.cell_output import say

__all__ = ["shown"]


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
