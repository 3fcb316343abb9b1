"""How smoothly JupyterLab's notebook scrolls beside a search of 500 trials that really runs."""

from __future__ import annotations

import statistics

from bench.browser import lab_in_browser, scrolling, tasks_traced
from bench.harness import Goal, Line, Probe, Row, is_quick, tell

_PROBE = Probe("bench.rows.notebook_scroll")
_N_TRIALS = 500
_N_STEPS = 4
_N_BEFORE = 20
"""Trials that have ended before it is scrolled."""
_TASK_MS = 1.0
_VIEW = ".ddl-live[data-run]"
_BOX = "scrolled"
_MARK_BOX = f"""() => {{
  let box = document.querySelector("{_VIEW}");
  while (box !== null && box.scrollHeight <= box.clientHeight + 100) box = box.parentElement;
  box.id = "{_BOX}";
}}"""
_IS_UNDER_WAY = f"""() => Number(
  document.querySelector("{_VIEW} [role=progressbar]")?.ariaValueNow ?? 0) >= {_N_BEFORE}"""

ROW = Row(
    name="notebook_scroll",
    title=f"Scrolling a notebook beside a search of {_N_TRIALS} trials",
    better="higher",
    repeats=3,
    warmups=0,
    note=(
        "A real JupyterLab in headless Chromium, drawn by the CPU; the cell's search reports ten "
        "times a second on each of two workers of the same machine. The notebook is scrolled up "
        "and down over the live view; frames are counted by the page itself. Tasks are those of "
        "the page's main thread that take 1 ms or more."
    ),
    lines=(
        Line("frames", _PROBE, "frames_per_s", "1/s", Goal(30.0, "higher")),
        Line("longest 1 % of the gaps between them", _PROBE, "gap_p99_ms", "ms"),
        Line("99th percentile of tasks", _PROBE, "task_p99_ms", "ms", Goal(50.0, "lower")),
        Line("longest task", _PROBE, "task_ms", "ms"),
        Line("trials that ended meanwhile", _PROBE, "n_trials", "trials"),
    ),
)


def main() -> None:
    with lab_in_browser() as (lab, browser):
        from tests.browser.lab_tools import open_notebook, run_cell
        from tests.browser.panel_tools import LOAD, search_cell

        page = browser.new_page(viewport={"width": 1100, "height": 800})
        search = search_cell("scrolled", _N_TRIALS, _N_STEPS)
        open_notebook(page, lab, "scroll.ipynb", LOAD, "%cluster start -n 2", search)
        run_cell(page, 0)
        run_cell(page, 1)
        run_cell(page, 2, wait=False)
        page.wait_for_function(_IS_UNDER_WAY, timeout=120_000)
        page.evaluate(_MARK_BOX)
        bar = page.locator(f"{_VIEW} [role=progressbar]").first
        before = int(bar.get_attribute("aria-valuenow") or 0)
        with tasks_traced(page) as took_ms:
            gaps_ms = page.evaluate(scrolling(f"#{_BOX}", 2000), 3 if is_quick() else 20)
        after = int(bar.get_attribute("aria-valuenow") or 0)
    tasks_ms = [each for each in took_ms if each >= _TASK_MS]
    tell(
        {
            "frames_per_s": 1000 * len(gaps_ms) / sum(gaps_ms),
            "gap_p99_ms": statistics.quantiles(gaps_ms, n=100)[98],
            "task_p99_ms": statistics.quantiles(tasks_ms, n=100)[98],
            "task_ms": max(tasks_ms),
            "n_trials": after - before,
        }
    )


if __name__ == "__main__":
    main()
