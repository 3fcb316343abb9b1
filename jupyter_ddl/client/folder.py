"""The folder that a run works in, as far as the notebook's side can know."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from jupyter_ddl.cell.work_folder import work_folder
from jupyter_ddl.client.session import session
from jupyter_ddl.errors import OptionError
from jupyter_ddl.protocol.run import RunSpec

__all__ = ["check_resumed", "shares_files", "tell_of_folder"]


def shares_files(cluster: str) -> bool:
    """Whether the ranks of a running cluster see this host's files."""
    return session().info(cluster).shares_files


def tell_of_folder(cluster: str, on_notice: Callable[[str], None]) -> None:
    """Say beforehand that ranks can't write where the notebook is."""
    folder = work_folder()
    if shares_files(cluster) and not os.access(folder, os.W_OK):
        on_notice(
            f"{folder}, where the ranks work as the notebook does, can't be written: what the cell "
            f"saves by a relative name fails"
        )


def check_resumed(spec: RunSpec) -> None:
    """Refuse to go on with a run whose folder is no more.

    Raises
    ------
    OptionError
        The cluster shares this host's files, and the folder is gone or can't be read.
    """
    folder = Path(spec.folder)
    if not spec.folder or not shares_files(spec.cluster):
        return
    if not (folder.is_dir() and os.access(folder, os.R_OK | os.X_OK)):
        raise OptionError(
            f"--resume {spec.run_id}: the run works in {folder}, which is gone or can't be read; "
            f"make the folder again, or run the cell without --resume",
            path=spec.folder,
        )
