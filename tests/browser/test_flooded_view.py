"""The live view beside ranks that print without end: what reaches the page is bounded."""

from __future__ import annotations

import time

from playwright.sync_api import Page, expect

from tests.browser.frames import Frames
from tests.browser.lab_tools import Lab, cell_at, open_notebook, run_cell, wait_done
from tests.until import until

N_RANKS, N_TICKS, PER_TICK, WIDTH = 4, 30, 1000, 120
START = f"%load_ext jupyter_ddl\n%cluster start -n {N_RANKS}"
FLOOD = f"""%%distribute ddp -n {N_RANKS} --no-init --name flood
import sys, time
from jupyter_ddl import report
for tick in range({N_TICKS}):
    sys.stdout.write((f"tick {{tick}} ".ljust({WIDTH - 1}, "x") + "\\n") * {PER_TICK})
    report(step=tick, told=tick)
    time.sleep(0.1)
"""


def test_a_flood_of_four_ranks_reaches_the_page_in_small_and_the_disk_whole(
    lab: Lab, page: Page
) -> None:
    """At most 20 messages and 200 kB a second, the newest lines among them; all are on disk."""
    frames = Frames(page)
    open_notebook(page, lab, "flood.ipynb", START, FLOOD)
    run_cell(page, 0)
    run_cell(page, 1, wait=False)
    view = cell_at(page, 1).locator(".ddl-live[data-run]")
    expect(view.locator(".ddl-lane")).to_have_count(N_RANKS)
    view.locator("summary", has_text="Output").click()
    frames.n_messages = frames.n_bytes = 0
    began_s = time.monotonic()
    shown = view.locator(".ddl-log")
    until(lambda: newest_tick(shown.inner_text()) == N_TICKS - 1, 30.0, "the newest lines")
    wait_done(page, 1)
    took_s = time.monotonic() - began_s
    assert frames.n_messages <= 20 * took_s + 20
    assert frames.n_bytes <= 200e3 * took_s + 200e3
    logs = list((lab.home.data / "runs").glob("*/logs/*.log"))
    n_lines = sum(path.read_bytes().count(b"x\n") for path in logs)
    assert n_lines == N_RANKS * N_TICKS * PER_TICK


def newest_tick(text: str) -> int:
    return max((int(line.split()[1]) for line in text.splitlines() if "tick" in line), default=-1)
