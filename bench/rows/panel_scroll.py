"""How smoothly the heat map of the panel scrolls with a thousand workers, measured at 1 Hz."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from bench.browser import lab_in_browser, scrolling
from bench.harness import Goal, Line, Probe, Row, is_quick, tell

if TYPE_CHECKING:
    from playwright.sync_api import Page

_PROBE = Probe("bench.rows.panel_scroll")
_N_WORKERS = 1000
_SCROLL = scrolling(".jp-ddl-heat-box", 500)

ROW = Row(
    name="panel_scroll",
    title="Panel, scrolling a heat map of 1,000 workers",
    better="higher",
    repeats=3,
    warmups=0,
    note=(
        "JupyterLab in headless Chromium, drawn by the CPU. The workers' telemetry comes once a "
        "second over the panel's websocket while the field is scrolled up and down; frames are "
        "counted by the page itself."
    ),
    lines=(
        Line("frames", _PROBE, "frames_per_s", "1/s", Goal(30.0, "higher")),
        Line("longest 1 % of the gaps between them", _PROBE, "gap_p99_ms", "ms"),
    ),
)


def main() -> None:
    with lab_in_browser() as (lab, browser):
        page = browser.new_page(viewport={"width": 1100, "height": 800})
        gaps_ms = _scroll(page, lab.address, lab.token)
    tell(
        {
            "frames_per_s": 1000 * len(gaps_ms) / sum(gaps_ms),
            "gap_p99_ms": statistics.quantiles(gaps_ms, n=100)[98],
        }
    )


def _scroll(page: Page, address: str, token: str) -> list[float]:
    """Milliseconds between frames."""
    from jupyter_ddl.protocol.view_messages import ClusterList
    from tests.browser.panel_script import ScriptedServer, cluster, gpu_telemetry

    status = cluster("many", _N_WORKERS, n_busy=_N_WORKERS, active=("r1",))
    server = ScriptedServer(
        page,
        lambda: [
            ClusterList(seq=0, at_s=0.0, clusters=(status,)),
            gpu_telemetry("many", _N_WORKERS, 0),
        ],
    )
    page.goto(f"{address}/lab?token={token}&reset")
    page.wait_for_function("() => window.jupyterapp?.restored")
    page.evaluate("() => window.jupyterapp.restored")
    page.evaluate(
        "() => { void window.jupyterapp.commands.execute('jupyter-ddl:open-cluster',"
        " {name: 'many'}); }"
    )
    page.wait_for_selector(".jp-ddl-heat canvas")
    gaps_ms: list[float] = []
    for second in range(3 if is_quick() else 10):
        server.say(gpu_telemetry("many", _N_WORKERS, 0, phase=second / 10))
        gaps_ms += page.evaluate(_SCROLL, 1)
    return gaps_ms


if __name__ == "__main__":
    main()
