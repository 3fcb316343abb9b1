"""``make notebooks``: executes the notebooks and writes what a reader would see into the documents.

A page per notebook, ``docs/notebooks/NAME.md``, with the outputs as they came: views as the HTML
that is saved in a notebook, tables, text, pictures beside the page.  At most 64 kB per cell.
``python tools/publish_notebooks.py [NOTEBOOK …]``
"""

from __future__ import annotations

import argparse
import bisect
import itertools
import re
import shutil
import sys
import time
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from nbclient.exceptions import CellExecutionError
from nbconvert import MarkdownExporter
from notebook_runs import FOLDER, ROOT, Executed, execute

from jupyter_ddl.store.host_limits import host_limits

PAGES = ROOT / "docs" / "notebooks"
MOST_BYTES_OF_A_CELL = 64_000
MOST_BYTES_OF_A_PAGE = 300_000
_NOTE_BYTES = 80
_TABLE = '<table border="1" class="dataframe">'
_NEEDS = {"05_large_data": "dask_ml"}
_SHOWN = ("text/html", "image/svg+xml", "image/png", "text/plain")
"""What a page can show, the best first; widgets need a kernel."""
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_LINK = re.compile(r"\]\((\w+)\.ipynb(#[\w-]+)?\)")


def main() -> int:
    """Exit status 1 when a notebook could not be executed; its page stays as it was."""
    parser = argparse.ArgumentParser(description="Publish executed notebooks.")
    parser.add_argument("notebooks", nargs="*", type=Path, help="default: all in notebooks/")
    chosen = parser.parse_args().notebooks or sorted(FOLDER.glob("*.ipynb"))
    warnings.simplefilter("ignore")  # of the kernel's libraries; the notebook shows its own
    return max([_publish(path.resolve()) for path in chosen], default=0)


def _publish(path: Path) -> int:
    module = _NEEDS.get(path.stem)
    if module is not None and find_spec(module) is None:
        print(f"{path.name}: needs {module}, which is not installed", file=sys.stderr)
        return 1
    began_s = time.monotonic()
    try:
        done = execute(path)
    except CellExecutionError as error:
        print(f"{path.name}: {error}", file=sys.stderr)
        return 1
    page = PAGES / f"{path.stem}.md"
    size = write_page(done, page)
    print(f"{page.relative_to(ROOT)}: {size / 1000:.0f} kB, {time.monotonic() - began_s:.0f} s")
    if size > MOST_BYTES_OF_A_PAGE:
        print(f"{page.name} is larger than {MOST_BYTES_OF_A_PAGE / 1000:.0f} kB", file=sys.stderr)
        return 1
    return 0


def write_page(done: Executed, page: Path) -> int:
    """Write a page and its pictures; returns the bytes of all."""
    for cell in done.notebook.cells:
        if cell.cell_type == "code":
            _bound(cell)
    pictures = page.with_name(f"{page.stem}_files")
    shutil.rmtree(pictures, ignore_errors=True)
    page.parent.mkdir(parents=True, exist_ok=True)
    asked = {"unique_key": page.stem, "output_files_dir": pictures.name}
    exporter: Any = MarkdownExporter()  # type: ignore[no-untyped-call]
    body, resources = exporter.from_notebook_node(done.notebook, asked)
    text = _turned(_without_places(body, done.folder))
    text = _with_origin(text, page.stem, done.load)
    page.write_text(text)
    size = len(text.encode())
    for name, data in resources.get("outputs", {}).items():
        pictures.mkdir(exist_ok=True)
        (page.parent / name).write_bytes(data)
        size += len(data)
    return size


# -- what of an output is shown ------------------------------------------------------------------


def _bound(cell: Any) -> None:
    """Reduce a cell's outputs to one form each, and to so many bytes in all."""
    left = MOST_BYTES_OF_A_CELL
    for output in cell.outputs:
        if output.output_type == "stream":
            output.text = _cut(_ANSI.sub("", output.text), left)
            left -= _size(output.text)
        elif "data" in output:
            output.data = _best(output.data, left)
            left -= sum(_size(str(value)) for value in output.data.values())


def _best(data: dict[str, Any], left: int) -> dict[str, Any]:
    for kind in _SHOWN:
        if kind in data and (kind == "text/plain" or len(str(data[kind]).encode()) <= left):
            value = data[kind]
            if kind == "text/html":
                value = _in_one_block(value)
            elif kind == "text/plain":
                value = _cut(_ANSI.sub("", value), left)
            return {kind: value}
    return {}


def _in_one_block(html: str) -> str:
    """HTML that stays HTML in Markdown: one block, without lines that would end or indent it."""
    html = html.replace(_TABLE, "<table>")  # the site's tables look better than 1995's
    lines = (line.strip() for line in html.splitlines())
    return f"<div>{' '.join(line for line in lines if line)}</div>"


def _cut(text: str, left: int) -> str:
    """The beginning of a text, whole lines of it, and how much is missing."""
    if _size(text) <= left:
        return text
    lines = text.splitlines(keepends=True)
    ends = list(itertools.accumulate(_size(line) for line in lines))
    n_kept = bisect.bisect_right(ends, left - _NOTE_BYTES)
    return "".join([*lines[:n_kept], f"… ({len(lines) - n_kept:,} more lines)\n"])


def _size(text: str) -> int:
    """Bytes of a text in the page, where each of its lines is indented."""
    return len(text.encode()) + 4 * (text.count("\n") + 1)


# -- the page ------------------------------------------------------------------------------------


def _without_places(text: str, folder: Path) -> str:
    """A page without the directories of the machine that made it."""
    for place in (folder, ROOT, Path(sys.base_prefix)):
        text = text.replace(str(place), "~")
    return text


def _turned(text: str) -> str:
    """Links to other notebooks and to documents lead to their pages."""
    text = text.replace("](../docs/", "](../")
    return _LINK.sub(lambda match: f"]({match[1]}.md{match[2] or ''})", text)


def _with_origin(text: str, name: str, load: float) -> str:
    """Say below the title where all this comes from."""
    title, _, rest = text.strip().partition("\n")
    day = time.strftime("%Y-%m-%d", time.gmtime())
    origin = (
        f"*The notebook `notebooks/{name}.ipynb` with its outputs, as `make notebooks` executed it "
        f"on {day} ({host_limits().cpus} cores, load {load:.0f} before it began).*"
    )
    return f"{title}\n\n{origin}\n{rest}\n"


if __name__ == "__main__":
    sys.exit(main())
