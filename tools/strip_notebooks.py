"""Notebooks lie in git without outputs: strips them, or with ``--check`` only names them.

``python tools/strip_notebooks.py [--check] [NOTEBOOK …]``
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import nbformat

ROOT = Path(__file__).resolve().parent.parent
_KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def main() -> int:
    """Exit status 1 when ``--check`` found something."""
    options = _options()
    paths = options.notebooks or sorted((ROOT / "notebooks").glob("*.ipynb"))
    unstripped = [path for path in paths if not is_stripped(path)]
    if not options.check:
        for path in unstripped:
            path.write_text(stripped_text(path))
    for path in unstripped:
        word = "has outputs: `make format` strips them" if options.check else "stripped"
        print(f"{path}: {word}")
    return 1 if options.check and unstripped else 0


def is_stripped(path: Path) -> bool:
    """Whether a notebook is, byte for byte, what :func:`stripped_text` makes of it."""
    return path.read_text() == stripped_text(path)


def stripped_text(path: Path) -> str:
    """A notebook's text without outputs, execution counts and what editors leave behind."""
    notebook: Any = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    for cell in notebook.cells:
        tags = cell.metadata.get("tags")
        cell.metadata = {"tags": tags} if tags else {}
        if cell.cell_type == "code":
            cell.outputs = []
            cell.execution_count = None
    notebook.metadata = {"kernelspec": _KERNEL, "language_info": {"name": "python"}}
    text: str = nbformat.writes(notebook)  # type: ignore[no-untyped-call]
    return text.rstrip("\n") + "\n"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Strip outputs from notebooks.")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if any has")
    parser.add_argument("notebooks", nargs="*", type=Path, help="default: all in notebooks/")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
