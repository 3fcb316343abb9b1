"""What the tests of the panel do: open it, find its rows, run cells beside it."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.browser.lab_tools import Lab, open_notebook, run_cell

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

__all__ = [
    "LOAD",
    "card",
    "connected",
    "execute",
    "must_be_fresh",
    "n_finished",
    "open_beside",
    "run_page",
    "run_row",
    "search_cell",
    "show_panel",
]

LOAD = "%load_ext jupyter_ddl\nfrom jupyter_ddl import choice, rank, report, uniform"


_BUILD = Path(__file__).resolve().parents[2] / "tools" / "build_labextension.py"


def search_cell(name: str, n_trials: int, n_steps: int, step_s: float = 0.1) -> str:
    """A search whose trials take ``n_steps * step_s`` seconds."""
    return (
        f"%%distribute search --metric acc --mode max --trials {n_trials} --sampler random"
        f" --seed 1 --name {name}\n"
        "import time\n"
        "x = uniform(0.0, 1.0)\n"
        f"for step in range({n_steps}):\n"
        f"    time.sleep({step_s})\n"
        "    print('step', step)\n"
        "    report(step=step, acc=x)\n"
    )


@cache
def must_be_fresh() -> None:
    """Fail where JupyterLab would load an older panel than the one that is here."""
    command = [sys.executable, _BUILD, "--check"]
    if subprocess.run(command, timeout=120, check=False).returncode != 0:
        raise AssertionError("the panel's bundle is missing or old: make labextension")


def execute(page: Page, command: str) -> None:
    """Execute a command of JupyterLab's; not awaited, for it may wait for a person."""
    must_be_fresh()
    page.evaluate("name => { void window.jupyterapp.commands.execute(name); }", command)


def show_panel(page: Page) -> Locator:
    """Open the panel and wait until it is connected."""
    execute(page, "jupyter-ddl:show-panel")
    found = page.locator("#jupyter-ddl-panel")
    expect(found).to_be_visible()
    connected(page)
    return found


def connected(page: Page) -> None:
    """Wait until no banner tells of a lost connection."""
    expect(page.locator("#jupyter-ddl-panel .jp-ddl-banner")).to_be_hidden()
    expect(page.locator(".jp-ddl-status-button")).to_contain_text("run")


def card(page: Page, cluster: str) -> Locator:
    """A cluster in the panel."""
    return page.locator(f".jp-ddl-card[data-cluster={cluster}]")


def run_row(page: Page, name: str) -> Locator:
    """A run in the panel, by its name."""
    rows = page.locator("button.jp-ddl-run")
    return rows.filter(has=page.locator(".jp-ddl-name").get_by_text(name, exact=True)).first


def run_page(page: Page, name: str) -> Locator:
    """Open the page of a run from the panel; returns the live view in it."""
    run_row(page, name).click()
    found = page.locator(".jp-ddl-run-view:not(.lm-mod-hidden) .ddl-live[data-run]")
    expect(found).to_be_visible()
    return found


def n_finished(page: Page, name: str) -> int:
    """Trials of a search that have ended, as its row tells; 0 before the first message."""
    for fact in run_row(page, name).locator(".jp-ddl-fact span").all_inner_texts():
        done, slash, _ = fact.partition("/")
        if slash and done.isdecimal():
            return int(done)
    return 0


def open_beside(page: Page, lab: Lab, name: str, *cells: str) -> None:
    """A notebook with the extension loaded, a cluster of two workers, and the panel beside it."""
    open_notebook(page, lab, name, LOAD, "%cluster start -n 2", *cells)
    show_panel(page)
    run_cell(page, 0)
    run_cell(page, 1)
