"""Runs in the panel, whatever the kernel does meanwhile: busy, restarted, gone."""

from __future__ import annotations

import json
import re

from playwright.sync_api import Locator, Page, WebSocket, expect

from tests.browser.lab_tools import (
    Lab,
    cell_at,
    press_twice,
    prompt_of,
    run_cell,
    take,
    wait_done,
)
from tests.browser.panel_tools import n_finished, open_beside, run_page, run_row, search_cell
from tests.until import until

_DDP = """\
%%distribute ddp -n 2 --name training
import time
for step in range(60):
    time.sleep(0.1)
    report(step=step, loss=1.0 / (1 + step))
"""
_RESTART = (
    "async () => { const panel = window.jupyterapp.shell.currentWidget;"
    " await panel.sessionContext.session.kernel.restart(); }"
)


def _is_busy(page: Page, index: int) -> bool:
    return prompt_of(page, index) == "[*]:"


def _cell_of_trial(page: Page, number: int) -> Locator:
    return page.locator("td:first-child", has_text=re.compile(rf"^(★ )?{number}$"))


def test_a_trial_and_a_run_are_stopped_while_their_cell_runs(lab: Lab, page: Page) -> None:
    open_beside(page, lab, "stops.ipynb", search_cell("long", 200, 3000))
    run_cell(page, 2, wait=False)
    live = run_page(page, "long")
    live.locator("button[data-trial='0']").click()
    expect(live.locator("tr", has=_cell_of_trial(page, 0))).to_contain_text("cancelled")
    take(page, "panel-run-page")
    page.locator(".lm-TabBar-tabLabel", has_text="stops.ipynb").click()
    assert _is_busy(page, 2)
    expect(run_row(page, "long")).to_contain_text("running")

    run_row(page, "long").click()
    live.get_by_role("button", name="Other ways to stop").click()
    press_twice(live.get_by_role("button", name="Stop now"), "Really stop now?")
    expect(run_row(page, "long")).to_contain_text("cancelled")
    page.locator(".lm-TabBar-tabLabel", has_text="stops.ipynb").click()
    wait_done(page, 2)


def test_buttons_of_a_cell_go_through_the_panel_while_the_kernel_is_busy(
    lab: Lab, page: Page
) -> None:
    sent: list[str] = []

    def listen(socket: WebSocket) -> None:
        if "jupyter-ddl" in socket.url:
            socket.on("framesent", lambda frame: sent.append(str(frame)))

    page.on("websocket", listen)
    open_beside(page, lab, "relay.ipynb", search_cell("relayed", 200, 3000))
    output = run_cell(page, 2, wait=False)
    output.locator("button[data-trial='1']").click()
    expect(output.locator("tr", has=_cell_of_trial(page, 1))).to_contain_text("cancelled")
    assert [json.loads(text) for text in sent if '"stop_trial"' in text] != []
    assert _is_busy(page, 2)
    output.get_by_role("button", name="Other ways to stop").click()
    press_twice(output.get_by_role("button", name="Stop now"), "Really stop now?")
    wait_done(page, 2)
    assert any('"stop_run"' in text for text in sent)


def test_a_search_goes_on_when_its_kernel_restarts_and_is_attached_again(
    lab: Lab, page: Page
) -> None:
    open_beside(page, lab, "restart.ipynb", search_cell("lasting", 1000, 5))
    run_cell(page, 2, wait=False)
    until(lambda: n_finished(page, "lasting") >= 2, 30, "two trials")
    page.evaluate(_RESTART)
    before = n_finished(page, "lasting")
    until(lambda: n_finished(page, "lasting") >= before + 4, 60, "trials after the restart")

    live = run_page(page, "lasting")
    page.get_by_role("button", name="Insert code to attach").click()
    expect(cell_at(page, 3).locator(".cm-content")).to_contain_text("%runs attach ")
    # The kernel is new, so the extension is loaded anew.
    run_cell(page, 0)
    output = run_cell(page, 3, wait=False)
    expect(output).to_contain_text("lasting")
    assert _is_busy(page, 3)
    run_row(page, "lasting").click()
    live.get_by_role("button", name="Other ways to stop").click()
    live.get_by_role("button", name="Keep best and finish").click()
    expect(run_row(page, "lasting")).not_to_contain_text("running")
    page.locator(".lm-TabBar-tabLabel", has_text="restart.ipynb").click()
    wait_done(page, 3)


def test_a_training_is_followed_and_survives_reload_and_a_server_restart(
    lab: Lab, page: Page
) -> None:
    open_beside(page, lab, "training.ipynb", _DDP)
    run_cell(page, 2, wait=False)
    live = run_page(page, "training")
    expect(live).to_contain_text("Ranks")
    expect(run_row(page, "training")).to_contain_text("running")
    take(page, "panel-training")

    # JupyterLab writes its layout a moment after a change.
    until(lambda: "jupyter-ddl-runs" in json.dumps(lab.ask("lab/api/workspaces")), 20, "a layout")
    page.reload()
    live = page.locator(".jp-ddl-run-view .ddl-live[data-run]")
    expect(live).to_be_visible()
    expect(page.locator(".lm-TabBar-tabLabel", has_text="training").last).to_have_text("training")

    lab.stop()
    banner = page.locator("#jupyter-ddl-panel .jp-ddl-banner")
    expect(banner).to_contain_text("Reconnecting")
    expect(page.locator(".jp-ddl-status-button")).to_have_text("reconnecting…")
    take(page, "panel-reconnecting")
    lab.start()
    expect(banner).to_be_hidden()
    expect(live).to_have_attribute("data-state", "complete")
    expect(run_row(page, "training")).to_contain_text("complete")
