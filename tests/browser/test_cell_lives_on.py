"""The view in a cell, whatever becomes of the kernel, the server, the page and the notebook."""

from __future__ import annotations

import json

from playwright.sync_api import Locator, Page, expect

from tests.browser.lab_tools import (
    Lab,
    cell_at,
    look_at,
    open_notebook,
    run_cell,
    serious_findings,
    set_theme,
    take,
    wait_ready,
)
from tests.browser.panel_tools import LOAD, must_be_fresh, search_cell
from tests.until import until

_RESTART = (
    "async () => { const panel = window.jupyterapp.shell.currentWidget;"
    " await panel.sessionContext.session.kernel.restart(); }"
)
_SAVE = "() => window.jupyterapp.commands.execute('docmanager:save')"


def _view(page: Page, index: int) -> Locator:
    """The view that the panel's server feeds."""
    return look_at(cell_at(page, index), ".jp-ddl-cell .ddl-live[data-run]")


def _goes_on(page: Page, view: Locator) -> None:
    bar = view.locator("[role=progressbar]")
    before = int(bar.get_attribute("aria-valuenow") or 0)
    until(lambda: int(bar.get_attribute("aria-valuenow") or 0) >= before + 2, 20, "trials")
    expect(page.locator(".jp-Notebook")).not_to_contain_text("Error displaying widget")


def test_the_cell_outlives_kernel_page_server_and_the_notebook_s_trust(
    lab: Lab, page: Page
) -> None:
    must_be_fresh()
    cells = (LOAD, "%cluster start -n 2", search_cell("lasting", 1000, 5))
    open_notebook(page, lab, "lasting.ipynb", *cells)
    run_cell(page, 0)
    run_cell(page, 1)
    run_cell(page, 2, wait=False)
    view = _view(page, 2)
    _goes_on(page, view)
    page.evaluate(_SAVE)

    page.evaluate(_RESTART)
    _goes_on(page, view)
    page.reload()
    wait_ready(page)
    _goes_on(page, _view(page, 2))
    lab.stop()
    expect(view).to_contain_text("no news for")
    lab.start()
    _goes_on(page, _view(page, 2))

    notebook = json.loads((lab.home.work / "lasting.ipynb").read_text())
    outputs = notebook["cells"][2]["outputs"]
    assert len(json.dumps(outputs).encode()) <= 64 * 1024
    assert "widget-view" in json.dumps(outputs)  # it was saved while its kernel lived
    notebook["metadata"] = {"kernelspec": {"name": "gone", "display_name": "Gone"}}
    (lab.home.work / "untrusted.ipynb").write_text(json.dumps(notebook))
    page.goto(f"{lab.address}/lab/tree/untrusted.ipynb?token={lab.token}&reset")
    page.locator(".jp-Dialog button", has_text="No Kernel").click()
    view = _view(page, 2)
    _goes_on(page, view)
    view.get_by_role("button", name="Other ways to stop").click()
    view.get_by_role("button", name="Keep best and finish").click()
    expect(view).to_have_attribute("data-state", "complete")
    expect(view.locator(".ddl-strand").first).to_be_attached()
    view.locator("summary", has_text="Output").click()
    expect(view.locator(".ddl-log")).to_contain_text("step 4")
    view.get_by_label("Filter trials by state").fill("complete")
    expect(view.get_by_label("Trials", exact=True).locator("tbody tr").first).to_be_visible()
    take(page, "cell-lives-on")
    for section in view.locator("details.ddl-section:not([open]) > summary:visible").all()[::-1]:
        section.click()
    for theme in ("dark", "light"):
        set_theme(page, theme)
        assert serious_findings(page, ".jp-ddl-cell") == []


def test_a_cell_whose_run_can_not_be_followed_says_so_and_shows_what_was_saved(
    lab: Lab, page: Page
) -> None:
    must_be_fresh()
    search = search_cell("finished", 6, 3, 0.02)
    open_notebook(page, lab, "finished.ipynb", LOAD, "%cluster start -n 2", search)
    for index in range(3):
        run_cell(page, index)
    view = _view(page, 2)
    expect(view).to_have_attribute("data-state", "complete")
    page.evaluate(_SAVE)
    output = cell_at(page, 2).locator(".jp-Cell-outputArea")
    record = lab.home.root / "away"
    there = next(
        path.parent
        for path in lab.home.root.rglob("ledger.ddl")
        if path.parent.name == view.get_attribute("data-run")
    )

    there.rename(record)
    expect(view).to_contain_text(f"there is no run {there.name}")
    expect(view.locator("tr", has_text="complete")).to_have_count(6)
    take(page, "cell-run-removed")
    page.reload()
    expect(output).to_contain_text(f"This run can’t be followed here: there is no run {there.name}")
    expect(output).to_contain_text("6 of 6 trials")
    take(page, "cell-run-not-there")
    record.rename(there)
    expect(_view(page, 2)).to_have_attribute("data-state", "complete")
    expect(output).not_to_contain_text("there is no run")

    page.route_web_socket("**/jupyter-ddl/api/live*", lambda socket: socket.close())
    page.reload()
    expect(output).to_contain_text("JupyterLab’s server is out of reach")
    expect(output).to_contain_text("6 of 6 trials")
    expect(page.locator(".jp-ddl-cell .ddl-live")).to_have_count(0)
