"""Which notebook and which cell this kernel runs, as far as a kernel can know."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["cell_number", "notebook_path"]


def cell_number(shell: Any) -> int | None:
    """The n of the ``In [n]`` that runs now.

    Not ``execution_count``: newer versions of IPython count up before the cell runs, older ones
    behind it.
    """
    n_inputs = len(shell.history_manager.input_hist_parsed)  # [0] is empty
    return n_inputs - 1 if n_inputs > 1 else None


def notebook_path(namespace: Mapping[str, Any]) -> Path | None:
    """The notebook's file, told by VS Code or by Jupyter's server; None where neither did."""
    told = (namespace.get("__vsc_ipynb_file__"), os.environ.get("JPY_SESSION_NAME"))
    for text in told:
        if isinstance(text, str) and text.endswith(".ipynb"):
            # A path from the server's root means nothing here, but kernels start in the folder.
            for path in (Path(text), Path.cwd() / Path(text).name):
                if path.is_absolute() and path.exists():
                    return path
    return None
