"""``make pictures``: the README's moving picture, from a real run in a real JupyterLab.

Opens the quickstart up to its search in a headless Chromium, and films the upper part of the cell
with its live view until the search is over, in the light and in the dark theme.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
# JupyterLab and the browser are started as the browser tests start them.
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "browser")]

from tests.browser.chromium import headless_chromium  # noqa: E402 - from the folders above
from tests.browser.lab_tools import open_notebook, served_lab, set_theme  # noqa: E402

if TYPE_CHECKING:
    from playwright.sync_api import Page

_LAST_CELL = "search"
_N_TRIALS = 60
_LINE = f"%%distribute search --metric val_acc --trials {_N_TRIALS} --sampler tpe --name digits"
_THEMES = ("light", "dark")
_WIDTH, _HEIGHT = 900, 1700
_SHOWN_HEIGHT = 600
"""Down to the curves: what lies below hardly moves."""
_TRIALS_PER_FRAME = 3
_FRAME_MS, _LAST_MS = 350, 4000
_QUALITY = 70
_MAX_BYTES = 600_000
_WAIT_S = 300.0
_SEARCH_CELL = ".jp-CodeCell:has-text('%%distribute')"


def main() -> int:
    """Take the pictures; always 0."""
    parser = argparse.ArgumentParser(description="Take the README's pictures.")
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "images")
    output = parser.parse_args().output
    output.mkdir(parents=True, exist_ok=True)
    with _quickstart() as page:
        _run_all(page)
        films = _film(page)
    for theme, frames in films.items():
        _save(frames, output / f"live_view_{theme}.webp")
    return 0


@contextmanager
def _quickstart() -> Iterator[Page]:
    """The first notebook up to its search, open in a JupyterLab with a home of its own."""
    notebook = json.loads((ROOT / "notebooks" / "01_quickstart.ipynb").read_text())
    ids = [cell["id"] for cell in notebook["cells"]]
    cells = notebook["cells"][: ids.index(_LAST_CELL) + 1]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    sources[-1] = f"{_LINE}\n{sources[-1].partition(chr(10))[2]}"
    with served_lab() as lab, headless_chromium() as browser:
        page = browser.new_page(
            viewport={"width": _WIDTH, "height": _HEIGHT}, device_scale_factor=1.5
        )
        page.set_default_timeout(_WAIT_S * 1000)
        open_notebook(page, lab, "quickstart.ipynb", *sources)
        yield page


def _run_all(page: Page) -> None:
    """Run all cells; returns when the first trial of the search has ended."""
    for command in ("application:toggle-left-area", "notebook:run-all-cells"):
        # Not awaited: the promise of the second ends with the search.
        page.evaluate("name => void window.jupyterapp.commands.execute(name)", command)
    _wait_for_trials(page, 1)


def _film(page: Page) -> dict[str, list[Image.Image]]:
    """Frames of both themes, one pair per few trials and one of the end."""
    films: dict[str, list[Image.Image]] = {theme: [] for theme in _THEMES}
    for n_trials in (*range(1, _N_TRIALS, _TRIALS_PER_FRAME), _N_TRIALS):
        _wait_for_trials(page, n_trials)
        for theme in _THEMES:
            films[theme].append(_frame(page, theme))
    return films


def _wait_for_trials(page: Page, least: int) -> None:
    page.wait_for_function(
        "least => { const text = document.querySelector('.jp-Notebook').innerText;"
        f" const done = text.match(/(\\d+) of {_N_TRIALS} trials/);"
        " return done && Number(done[1]) >= least; }",
        arg=least,
    )


def _frame(page: Page, theme: str) -> Image.Image:
    """The upper part of the cell in a theme."""
    set_theme(page, theme)
    cell = page.locator(_SEARCH_CELL).last
    cell.evaluate("cell => cell.scrollIntoView({ block: 'start' })")
    box = cell.bounding_box()
    if box is None:
        raise SystemExit("the cell is not to be seen")
    area = {"x": box["x"], "y": box["y"], "width": box["width"], "height": _SHOWN_HEIGHT}
    taken = page.screenshot(clip=area, animations="disabled")
    return Image.open(io.BytesIO(taken)).convert("RGB")


def _save(frames: list[Image.Image], target: Path) -> None:
    """An animated WebP that stays on its last frame for a while, and begins again."""
    durations = [*[_FRAME_MS] * (len(frames) - 1), _LAST_MS]
    first, *others = frames
    first.save(
        target, save_all=True, append_images=others, duration=durations, loop=0,
        quality=_QUALITY, method=6,
    )  # fmt: skip
    n_bytes = target.stat().st_size
    if n_bytes > _MAX_BYTES:
        raise SystemExit(f"{target} has {n_bytes:,} bytes; at most {_MAX_BYTES:,} are wanted")
    print(f"{target}: {len(frames)} frames, {n_bytes / 1000:.0f} kB")


if __name__ == "__main__":
    sys.exit(main())
