"""Clusters in the panel: started from its form, scaled, looked at, stopped; whoever began them."""

from __future__ import annotations

import json
import os
import signal

from playwright.sync_api import Page, expect

from tests.browser.lab_tools import Lab, open_notebook, run_cell, take
from tests.browser.panel_tools import LOAD, card, execute, show_panel

_NOTHING = "print(6 * 7)"


def test_a_cluster_is_started_scaled_and_stopped_from_the_panel(lab: Lab, page: Page) -> None:
    open_notebook(page, lab, "start.ipynb", _NOTHING)
    panel = show_panel(page)
    expect(panel).to_contain_text("No cluster is running.")

    panel.get_by_role("button", name="Start a cluster").first.click()
    form = panel.get_by_role("form", name="Start a cluster")
    form.get_by_label("Workers").fill("2x")
    form.get_by_label("Name").fill("mine")
    form.get_by_role("button", name="Start").click()
    expect(form.get_by_role("alert").first).to_have_text("A whole number from 1 to 1024, or empty")
    form.get_by_label("Workers").fill("2")
    form.get_by_label("Idle timeout").fill("20m")
    form.get_by_role("button", name="Start").press("Enter")
    mine = card(page, "mine")
    expect(mine).to_contain_text("ready")
    expect(form).to_be_hidden()
    expect(mine).to_contain_text("2 workers")
    expect(mine.locator(".jp-ddl-lease")).to_contain_text("ends in 19:")

    mine.get_by_role("button", name="Scale cluster mine").click()
    dialog = page.locator(".jp-Dialog")
    dialog.locator("input").fill("1")
    dialog.get_by_role("button", name="Scale").click()
    expect(mine).to_contain_text("1 worker,")

    mine.get_by_role("button", name="Stop cluster mine").click()
    expect(dialog).to_contain_text("No run is active on it.")
    dialog.get_by_role("button", name="Cancel").click()
    expect(mine).to_contain_text("ready")
    execute(page, "jupyter-ddl:stop-cluster")
    dialog.get_by_role("button", name="Stop").click()
    expect(mine).to_have_count(0)


def test_a_cluster_of_a_notebook_has_a_page_with_workers_and_log(lab: Lab, page: Page) -> None:
    open_notebook(page, lab, "other.ipynb", LOAD, "%cluster start -n 2 --name theirs")
    show_panel(page)
    run_cell(page, 0)
    run_cell(page, 1)
    card(page, "theirs").get_by_role("button", name="theirs", exact=True).click()
    view = page.locator(".jp-ddl-page:visible")
    expect(view.locator(".jp-ddl-heat canvas")).to_be_visible()
    expect(view.locator(".jp-ddl-log pre")).to_contain_text("ready")
    take(page, "panel-cluster-page")

    box = view.get_by_role("application")
    box.focus()
    box.press("ArrowRight")
    box.press("ArrowRight")
    expect(view.locator(".jp-ddl-heat-text")).to_contain_text("0 of 1 slots busy")
    box.press("Enter")
    expect(view.get_by_role("heading", name="Log of")).to_be_visible()
    view.get_by_role("button", name="all workers").click()
    view.get_by_label("Filter lines of the log").fill("no such line at all")
    expect(view.locator(".jp-ddl-log pre")).to_have_text("No such lines.")
    view.get_by_role("radio", name="GPU", exact=True).click()
    expect(view.get_by_label("Heat map of the workers")).to_contain_text("GPU")


def test_a_cluster_that_hangs_is_named_and_can_be_ended(lab: Lab, page: Page) -> None:
    open_notebook(page, lab, "hangs.ipynb", LOAD, "%cluster start -n 1 --name stuck")
    show_panel(page)
    run_cell(page, 0)
    run_cell(page, 1)
    stuck = card(page, "stuck")
    expect(stuck).to_contain_text("1 worker,")
    connection = lab.home.runtime / "jupyter_ddl" / "stuck.json"
    os.kill(json.loads(connection.read_text())["process"]["pid"], signal.SIGSTOP)
    expect(stuck).to_contain_text("Its controller does not answer.")
    stuck.get_by_role("button", name="Stop cluster stuck").click()
    dialog = page.locator(".jp-Dialog")
    expect(dialog).to_contain_text("Its controller does not answer")
    dialog.get_by_role("button", name="Stop").click()
    expect(stuck).to_have_count(0)


def test_the_panel_can_be_on_the_other_side(lab: Lab, page: Page) -> None:
    open_notebook(page, lab, "side.ipynb", _NOTHING)
    show_panel(page)
    expect(page.locator("#jp-left-stack #jupyter-ddl-panel")).to_be_visible()
    page.evaluate(
        "async () => { const app = window.jupyterapp;"
        " await app.serviceManager.settings.save('jupyter_ddl:plugin', '{\"side\": \"right\"}'); }"
    )
    page.reload()
    page.wait_for_selector("#jupyter-ddl-panel", state="attached")
    execute(page, "jupyter-ddl:show-panel")
    expect(page.locator("#jp-right-stack #jupyter-ddl-panel")).to_be_visible()
