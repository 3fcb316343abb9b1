"""The executed copies in the documents: up to date, small, and without the paths of their maker."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from notebook_runs import Executed
from publish_notebooks import MOST_BYTES_OF_A_CELL, MOST_BYTES_OF_A_PAGE, write_page

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PAGES = ROOT / "docs" / "notebooks"
_PLACE = re.compile(r"/(?:tmp|root|home/\w+|work|usr)/[\w.-]+")


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_page_is_the_notebook_as_it_is_now(notebook: Path) -> None:
    page = (PAGES / f"{notebook.stem}.md").read_text()
    cells: Any = nbformat.read(notebook, as_version=4).cells
    outdated = [c.source for c in cells if c.cell_type == "code" and c.source not in page]
    assert not outdated, f"run `make notebooks ARGS=notebooks/{notebook.name}`"
    pictures = PAGES / f"{notebook.stem}_files"
    size = len(page.encode()) + sum(path.stat().st_size for path in pictures.glob("*"))
    assert size <= MOST_BYTES_OF_A_PAGE
    written = "\n".join(cell.source for cell in cells)
    assert set(_PLACE.findall(page)) <= set(_PLACE.findall(written))


def test_there_is_no_page_without_a_notebook() -> None:
    assert {page.stem for page in PAGES.glob("*.md")} == {path.stem for path in NOTEBOOKS}


def test_an_output_is_shown_in_one_form_and_bounded(tmp_path: Path) -> None:
    new = nbformat.v4
    stream = new.new_output(
        "stream", name="stdout", text="\x1b[31mred\x1b[0m\n" + "line\n" * 30_000
    )
    both = new.new_output(
        "display_data", {"text/html": "<p>\n\n  small</p>", "text/plain": "PLAIN"}
    )
    large = new.new_output("display_data", {"text/html": "<p>" * 50_000, "text/plain": "INSTEAD"})
    cells = [
        new.new_markdown_cell("# Title\n\n[next](02_other.ipynb)"),
        new.new_code_cell("1", outputs=[stream]),
        new.new_code_cell("2", outputs=[both, large]),
    ]
    page = tmp_path / "pages" / "01_x.md"
    size = write_page(Executed(new.new_notebook(cells=cells), tmp_path), page)
    text = page.read_text()
    assert size == len(text.encode()) < MOST_BYTES_OF_A_CELL + 5_000
    assert "    red\n" in text
    assert re.search(r"… \([\d,]+ more lines\)", text)
    assert "<div><p> small</p></div>" in text
    assert "PLAIN" not in text
    assert "INSTEAD" in text
    assert "](02_other.md)" in text


def test_a_chart_is_a_picture_beside_the_page(tmp_path: Path) -> None:
    new = nbformat.v4
    drawn = "<svg xmlns='http://www.w3.org/2000/svg'/>"
    chart = new.new_output("display_data", {"image/svg+xml": drawn, "text/plain": "INSTEAD"})
    cells = [new.new_markdown_cell("# Title"), new.new_code_cell("1", outputs=[chart])]
    page = tmp_path / "01_x.md"
    size = write_page(Executed(new.new_notebook(cells=cells), tmp_path), page)
    text = page.read_text()
    (name,) = re.findall(r"!\[svg\]\((.+)\)", text)
    assert (tmp_path / name).read_text() == drawn
    assert size == len(text.encode()) + len(drawn)
    assert "INSTEAD" not in text
