"""Files that ranks have written elsewhere, after a cell: those that were asked for come home."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyter_ddl.formats import format_bytes, format_counted
from jupyter_ddl.views.cell_output import say

if TYPE_CHECKING:
    from jupyter_ddl.client.run import Run

__all__ = ["bring_files"]


def bring_files(run: Run, patterns: tuple[str, ...], name: str = "") -> None:
    """Put files that came back beside the notebook, and tell of those that stay on workers.

    Parameters
    ----------
    name : str
        What has the others; empty: they are not told of.
    """
    from jupyter_ddl.client.folder import shares_files
    from jupyter_ddl.protocol.folder import matches

    if not (patterns or name) or shares_files(run.spec.cluster):
        return
    files = run.files
    for pattern in patterns:
        if not any(matches(each.path, (pattern,)) for each in files):
            say(f"--bring-files {pattern}: the ranks have written no such file.")
            continue
        for path in files.fetch(pattern):
            say(f"{path.name} ← {path.parent} ({format_bytes(path.stat().st_size)})")
    left = [each for each in files if not matches(each.path, patterns)]
    if left and name:
        size = format_bytes(sum(each.size_bytes for each in left))
        n_files = format_counted(len(left), "file")
        say(f"{n_files} of the ranks stay on the workers ({size}): see `{name}`.")
