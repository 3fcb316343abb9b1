"""Which notebook this kernel runs, as far as a kernel can know."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["notebook_path"]


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
