"""A flood of log lines from four ranks, and what of it reaches the page with the live view."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from bench.browser import lab_in_browser
from bench.harness import Goal, Line, Probe, Row, is_quick, tell
from jupyter_ddl.ledger.reader import read_ledger
from jupyter_ddl.protocol.events import Reported

_OURS = Probe("bench.rows.flood")
_N_RANKS = 4
_LINES_PER_S = 10_000
_WIDTH = 120

ROW = Row(
    name="flood",
    title="Four ranks print 10,000 lines/s of 120 B each, beside the live view",
    better="lower",
    repeats=3,
    warmups=0,
    note=(
        "A real JupyterLab in headless Chromium, the view's output section open. Messages and "
        "bytes: all frames of the kernel's and the panel's websockets while the ranks print. "
        "Blocked: how late a timer of 10 ms comes on the page's main thread. The ranks keep the "
        "browser from its CPU, too, so an empty page in a process of its own is measured "
        "meanwhile. Answer: from asking for the log's end to its answer, by the panel's server."
    ),
    lines=(
        Line("lines lost on disk", _OURS, "n_lost", "lines", Goal(0, "lower")),
        Line("lines printed per second", _OURS, "lines_per_s", "1/s"),
        Line("messages to the page", _OURS, "messages_per_s", "1/s", Goal(20, "lower")),
        Line("bytes to the page", _OURS, "kb_per_s", "kB/s", Goal(200, "lower")),
        Line("page blocked, 99th percentile", _OURS, "blocked_p99_ms", "ms", Goal(100, "lower")),
        Line("… an empty page beside it", _OURS, "empty_p99_ms", "ms"),
        Line("answer with a log's end, median", _OURS, "answer_p50_ms", "ms"),
    ),
)

_CELL = """%%distribute ddp -n {n_ranks} --no-init --name flood
import sys, time
from jupyter_ddl import report
block = ("x" * {n_text} + "\\n") * {per_tick}
report(step=0, ready=1)
began = time.monotonic()
for tick in range(1, {n_ticks} + 1):
    sys.stdout.write(block)
    report(step=tick, elapsed_s=time.monotonic() - began)
    time.sleep(max(0.0, began + tick / 10 - time.monotonic()))
"""
WATCH = """() => {
  window.late = [];
  window.answers = [];
  let due = performance.now() + 10;
  const look = () => {
    window.late.push(Math.max(0, performance.now() - due));
    due = performance.now() + 10;
    setTimeout(look, 10);
  };
  setTimeout(look, 10);
}"""
QUANTILE = """share => {
  const sorted = window.late.slice().sort((a, b) => a - b);
  return sorted[Math.floor(share * (sorted.length - 1))];
}"""


def main() -> None:
    with lab_in_browser() as (lab, browser):
        tell(_measure(lab, browser.new_page(), browser.new_context().new_page()))


def _measure(lab: Any, page: Any, empty: Any) -> dict[str, float]:
    from tests.browser.frames import Frames
    from tests.browser.lab_tools import open_notebook, prompt_of, run_cell

    seconds = 4 if is_quick() else 10
    frames = Frames(page)
    cell = _CELL.format(
        n_ranks=_N_RANKS, n_text=_WIDTH - 1, per_tick=_LINES_PER_S // 10, n_ticks=10 * seconds
    )
    start = f"%load_ext jupyter_ddl\n%cluster start -n {_N_RANKS}"
    open_notebook(page, lab, "flood.ipynb", start, cell)
    run_cell(page, 0)
    run_cell(page, 1, wait=False)
    page.wait_for_selector(".ddl-lane")
    page.locator("summary", has_text="Output").click()
    for each in (page, empty):
        each.evaluate(WATCH)
    frames.n_messages = frames.n_bytes = 0
    began = time.perf_counter()
    while page.locator(".ddl-lane").count() and not prompt_of(page, 1)[1:-2].isdecimal():
        page.wait_for_timeout(200)
    took_s = time.perf_counter() - began
    logs = list((lab.home.data / "runs").glob("*/logs/*.log"))
    n_lines = sum(path.read_bytes().count(b"\n") for path in logs)
    n_wanted = _N_RANKS * _LINES_PER_S * seconds
    answers = sorted(frames.answers_s)
    return {
        "n_lost": n_wanted - n_lines,
        "lines_per_s": n_lines / _printing_s(lab.home.data),
        "messages_per_s": frames.n_messages / took_s,
        "kb_per_s": frames.n_bytes / took_s / 1e3,
        "blocked_p99_ms": page.evaluate(QUANTILE, 0.99),
        "empty_p99_ms": empty.evaluate(QUANTILE, 0.99),
        "answer_p50_ms": 1e3 * answers[len(answers) // 2],
    }


def _printing_s(home: Path) -> float:
    """How long the slowest rank has printed."""
    (ledger,) = (home / "runs").glob("*/ledger.ddl")
    reports = (event for event in read_ledger(ledger) if isinstance(event, Reported))
    return max(event.metrics.get("elapsed_s", 0.0) for event in reports)


if __name__ == "__main__":
    main()
