"""A JupyterLab in a headless Chromium, as the browser tests start it, for rows that see pages."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from bench.harness import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

    from tests.browser.lab_tools import Lab

__all__ = ["lab_in_browser", "scrolling", "search_in_browser", "tasks_traced"]


def scrolling(selector: str, period_ms: int) -> str:
    """A function of seconds for a page: it scrolls an element, and returns frames' gaps (ms)."""
    return f"""async seconds => {{
  const box = document.querySelector({selector!r});
  const gaps = [];
  const began = performance.now();
  let last = began;
  while (last - began < seconds * 1000) {{
    const now = await new Promise(requestAnimationFrame);
    gaps.push(now - last);
    last = now;
    const range = box.scrollHeight - box.clientHeight;
    box.scrollTop = range * (0.5 - 0.5 * Math.cos((now - began) / {period_ms}));
  }}
  return gaps.slice(1);
}}"""


@contextlib.contextmanager
def tasks_traced(page: Page) -> Iterator[list[float]]:
    """Milliseconds of each task of the page's main thread within it; there afterwards."""
    browser = page.context.browser
    assert browser is not None
    took_ms: list[float] = []
    browser.start_tracing(page=page, categories=["toplevel"])
    try:
        yield took_ms
    finally:
        events = json.loads(browser.stop_tracing())["traceEvents"]
    is_main = {
        (event["pid"], event["tid"])
        for event in events
        if event["name"] == "thread_name" and event["args"]["name"] == "CrRendererMain"
    }
    took_ms += [
        event["dur"] / 1e3
        for event in events
        if event["name"] == "ThreadControllerImpl::RunTask"
        and "dur" in event
        and (event["pid"], event["tid"]) in is_main
    ]


@contextlib.contextmanager
def lab_in_browser() -> Iterator[tuple[Lab, Browser]]:
    """A server with a home of its own, and a browser; within it the tests' modules can be imported.

    Server, kernels and clusters are gone afterwards.
    """
    sys.path.insert(0, str(ROOT))
    from tests.browser.chromium import headless_chromium
    from tests.browser.lab_tools import Lab
    from tests.leaks import end_processes, new_home

    with new_home() as home:
        lab = Lab(home)
        lab.start()
        try:
            with headless_chromium() as browser:
                yield lab, browser
        finally:
            lab.close()
            end_processes(home)


@contextlib.contextmanager
def search_in_browser(notebook: str, n_steps: int) -> Iterator[tuple[Lab, Page, Locator]]:
    """A page whose third cell is a search that goes on, on two workers; with that cell's output.

    Parameters
    ----------
    notebook : str
        Name of its file.
    n_steps : int
        Of each of the 1000 trials: ten reports a second.
    """
    with lab_in_browser() as (lab, browser):
        from tests.browser.lab_tools import open_notebook, run_cell
        from tests.browser.panel_tools import LOAD, search_cell

        page = browser.new_page(viewport={"width": 1100, "height": 1000})
        cells = (LOAD, "%cluster start -n 2", search_cell("long", 1000, n_steps))
        open_notebook(page, lab, notebook, *cells)
        run_cell(page, 0)
        run_cell(page, 1)
        yield lab, page, run_cell(page, 2, wait=False)
