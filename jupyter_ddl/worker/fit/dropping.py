"""Removes outputs of prefixes from a host; called in its worker, which runs no user code."""

from __future__ import annotations

import contextlib
from pathlib import Path

from jupyter_ddl.spec.fit import DropOutputs

__all__ = ["drop_outputs"]


def drop_outputs(message: DropOutputs) -> None:
    """Remove files by name, or with no names all of the run's.  Blocking.

    Users that have them mapped are not disturbed.
    """
    for directory in map(Path, message.dirs):
        names = list(message.names)
        if not names and directory.is_dir():
            names = [path.name for path in directory.glob(f"fit-{message.run_id}-*")]
        for name in names:
            if name.startswith(f"fit-{message.run_id}-"):
                with contextlib.suppress(OSError):
                    (directory / name).unlink()
