"""The folder that a cell works in, wherever it runs: the one that the kernel is in."""

from __future__ import annotations

import os
from pathlib import Path

from jupyter_ddl.errors import CellError

__all__ = ["notebook_folder", "work_folder"]


def work_folder() -> Path:
    """The kernel's working directory, as it is now (``%cd`` changes it).

    Raises
    ------
    CellError
        It was removed, or can't be read.
    """
    try:
        folder = Path.cwd()
    except FileNotFoundError:
        raise CellError(
            "the folder that this notebook works in was removed; `%cd` to one that is there, and "
            "run the cell again"
        ) from None
    if not os.access(folder, os.R_OK | os.X_OK):
        raise CellError(
            f"the folder that this notebook works in, {folder}, can't be read (user id "
            f"{os.getuid()}); give yourself the right to, or `%cd` to another one",
            path=str(folder),
        )
    return folder


def notebook_folder(notebook: Path | None) -> Path:
    """Where the notebook lies; where its file is not known, the folder it works in."""
    return work_folder() if notebook is None else notebook.parent
