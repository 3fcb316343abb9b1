"""Files that a framework has saved, as the state of a checkpoint, and back."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jupyter_ddl.ranks.frameworks.loops import MAX_BYTES

__all__ = ["read_files", "write_files"]


def read_files(path: Path) -> dict[str, Any] | None:
    """A file, or all files of a folder, by relative name; None if they are too large."""
    import numpy

    found = sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]
    if sum(each.stat().st_size for each in found) > MAX_BYTES:
        return None
    root = path if path.is_dir() else path.parent
    return {
        each.relative_to(root).as_posix(): numpy.fromfile(each, dtype=numpy.uint8) for each in found
    }


def write_files(folder: Path, files: Mapping[str, Any]) -> None:
    """Write what :func:`read_files` has read below a folder."""
    for name, content in files.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        content.tofile(target)
