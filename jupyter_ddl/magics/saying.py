"""Says one line, or one line that grows, in the output of a cell."""

from __future__ import annotations

import sys
import time
from types import TracebackType

__all__ = ["Phases", "say"]


def say(text: str) -> None:
    """Write a line to standard output, whatever that is for the cell that runs."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


class Phases:
    """The steps of a start on one line, each appended when it begins.

    A line that only grows looks right in a notebook, in a saved notebook and in a pipe.
    """

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self._open = False

    def __call__(self, text: str) -> None:
        """Append a step."""
        sys.stdout.write(f" · {text}" if self._open else text[:1].upper() + text[1:])
        sys.stdout.flush()
        self._open = True

    def done(self, text: str) -> None:
        """Append the last step with the time that all took, and end the line."""
        if self._open:
            say(f" · {text} ({time.monotonic() - self._began_s:.1f} s)")
        self._open = False

    def __enter__(self) -> Phases:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._open:  # an error comes below, on a line of its own
            say("")
        self._open = False
