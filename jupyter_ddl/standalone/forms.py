"""What a run is written as when it leaves the notebook: a program, or what starts it elsewhere."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

from jupyter_ddl.plugins import FORMS
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.standalone.script import Script

__all__ = ["ProgramFile", "ProgramForm", "program_form"]


class ProgramForm(ABC):
    """A form of file that a run's program is written as.

    A package adds one by the entry point group ``jupyter_ddl.forms``: a name, which
    ``%runs export RUN FILE --as`` takes, and a class derived from this one.
    """

    suffixes: ClassVar[tuple[str, ...]]
    """What its file's name may end in."""
    is_alone: ClassVar[bool] = True
    """Whether the file has all that it needs; else the program's folder is put beside it."""
    wants_image: ClassVar[bool] = False
    """Whether it names an image that the program runs in."""

    def check(self, spec: RunSpec) -> None:
        """Refuse runs that it does not fit, before anything is read.

        Raises
        ------
        OptionError
            One line that says why.
        """
        return

    @abstractmethod
    def text(self, script: Script, folder: Path, image: str) -> str:
        """The file.

        Parameters
        ----------
        script : Script
            The program.
        folder : Path
            Holds what the program is to find in ``script.folder`` beside it.
        image : str
            Empty unless :attr:`wants_image`.

        Raises
        ------
        OptionError
            One line that says why there can't be such a file.
        """

    def notes(self, script: Script) -> tuple[str, ...]:
        """What who uses it should know, in clauses."""
        return ()


class ProgramFile(ProgramForm):
    """The program itself, with a folder for what it needs beside it."""

    suffixes = (".py",)
    is_alone = False

    def text(self, script: Script, folder: Path, image: str) -> str:
        return script.text


def program_form(name: str) -> ProgramForm:
    """A form by its name.

    Raises
    ------
    OptionError
        There is none of this name; gives those that there are.
    PluginError
        It can't be loaded here.
    """
    found: type[ProgramForm] = FORMS.load(name)
    return found()
