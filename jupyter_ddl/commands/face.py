"""Who has typed a command: what it knows, and how it is told and asked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_ddl.views.cell_output import Phases, say

if TYPE_CHECKING:
    from jupyter_ddl.client.run import Run

__all__ = ["Answer", "Face", "Printed"]


class Printed(str):
    """What a run or a log says, and none of us: shown as it is."""

    __slots__ = ()


class Answer:
    """What a command shows at its end.

    Parameters
    ----------
    *parts
        Sentences and drawings, in order; empty ones are left out.
    is_good : bool
        False where the command found or left something that is not as it should be: the exit
        status of a terminal is 1 then.
    """

    def __init__(self, *parts: Any, is_good: bool = True) -> None:
        self.parts = tuple(part for part in parts if part is not None and part != "")
        self.is_good = is_good


class Face(ABC):
    """A notebook or a terminal, for the time of one command.

    Attributes
    ----------
    is_notebook : bool
        Whether what is shown is a cell's output.
    """

    is_notebook: bool

    @property
    @abstractmethod
    def folder(self) -> Path:
        """Where binder files are looked for: the notebook's, or the working directory."""

    @property
    @abstractmethod
    def imports(self) -> frozenset[str] | None:
        """Top-level modules that the notebook uses; None: all that is installed counts."""

    @property
    @abstractmethod
    def width(self) -> int:
        """Of text, in cells of a terminal."""

    @abstractmethod
    def agrees(self, question: str) -> bool:
        """Ask; nobody there to answer counts as a no."""

    @abstractmethod
    def watch(self, run: Run) -> None:
        """Show a run until its end, or until the watching is left."""

    def say(self, text: str) -> None:
        """A line ahead of the answer."""
        say(text)

    def steps(self) -> Phases:
        """A line that grows while a long command goes on; to be used in ``with``."""
        return Phases()
