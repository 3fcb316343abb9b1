"""Makes the cluster in use the default for plain Dask code, when a cell has some."""

from __future__ import annotations

import re
import sys
from typing import Any

from jupyter_ddl.errors import JupyterDDLError
from jupyter_ddl.magics.cell_output import say_note

__all__ = ["before_cell"]

_DASK = re.compile(r"\bdask")


def before_cell(info: Any) -> None:
    """Connect before the first cell that uses Dask, if a cluster of ours runs.

    Not earlier: importing ``distributed`` takes half a second that most notebooks have no use for.
    """
    if "jupyter_ddl.client.session" not in sys.modules:
        return
    if not _DASK.search(info.raw_cell or ""):
        return
    from jupyter_ddl.client.session import session

    name = session().current
    if name is None:
        return
    from jupyter_ddl.client.dask_client import connect_client, connected_client

    if connected_client() is not None or _has_another():
        return
    try:
        connect_client()
    except JupyterDDLError as error:
        say_note(f"plain Dask code runs in this kernel: {error.message}")


def _has_another() -> bool:
    """Whether the notebook has connected a client of its own, which then stays the default."""
    from distributed.client import _get_global_client

    return _get_global_client() is not None
