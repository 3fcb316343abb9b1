"""How soon the live view is back when a page is loaded again while its cell runs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from bench.browser import search_in_browser
from bench.harness import Line, Probe, Row, is_quick, tell

if TYPE_CHECKING:
    from playwright.sync_api import Page

_PROBE = Probe("bench.rows.reload")
_ANSWER = b'"kernel_info_reply"'

ROW = Row(
    name="reload",
    title="JupyterLab loaded again while a cell's search runs",
    better="lower",
    repeats=1,
    warmups=0,
    note=(
        "Headless Chromium; all times from the reload. JupyterLab holds back a page's messages "
        "until the kernel has said who it is, at most 3 s: a kernel that is busy answers because "
        "what waits for a run hands the shell's questions on."
    ),
    lines=(
        Line("cells in sight", _PROBE, "cells_s", "s"),
        Line("the busy kernel has answered", _PROBE, "kernel_s", "s"),
        Line("the view shows the run", _PROBE, "view_s", "s"),
    ),
)


def main() -> None:
    with search_in_browser("reload.ipynb", n_steps=20) as (_, page, _):
        page.wait_for_selector(".ddl-live[data-run]")
        page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")
        rounds = [_reload(page) for _ in range(2 if is_quick() else 5)]
    tell(
        {
            key: [times[key] for times in rounds if key in times]
            for key in ("cells_s", "kernel_s", "view_s")
        }
    )


def _reload(page: Page) -> dict[str, float]:
    """Seconds from the reload."""
    answered: list[float] = []

    def received(payload: bytes | str) -> None:
        data = payload if isinstance(payload, bytes) else payload.encode()
        if _ANSWER in data:
            answered.append(time.perf_counter())

    def opened(socket: Any) -> None:
        if "/channels" in socket.url:
            socket.on("framereceived", received)

    page.on("websocket", opened)
    began = time.perf_counter()
    page.reload()
    page.wait_for_selector(".jp-NotebookPanel .jp-Cell")
    cells = time.perf_counter()
    page.wait_for_selector(".ddl-live[data-run]")
    view = time.perf_counter()
    page.remove_listener("websocket", opened)
    times = {"cells_s": cells - began, "view_s": view - began}
    if answered:  # else the view has shown the run before
        times["kernel_s"] = answered[0] - began
    return times


if __name__ == "__main__":
    main()
