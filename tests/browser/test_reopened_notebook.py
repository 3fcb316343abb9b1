"""A notebook that was saved with finished runs: reopened without a kernel, and as a web page."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import nbformat
import pytest
from playwright.sync_api import Browser, Locator, Page, WebSocketRoute, expect

from tests.browser.lab_tools import (
    Lab,
    cell_at,
    open_notebook,
    run_cell,
    serious_findings,
    take,
    view_at,
)
from tests.browser.panel_tools import LOAD, search_cell
from tests.until import until

_DDP = """\
%%distribute ddp -n 2 --no-init --name training
for step in range(20):
    report(step=step, loss=1.0 / (1 + step))
"""
_IS_DRAWN = "image => image.complete && image.naturalWidth > 0"


@pytest.fixture(scope="module")
def saved(lab: Lab, chromium: Browser) -> str:
    """Name of a notebook with a finished search and a finished training."""
    page = chromium.new_page()
    try:
        open_notebook(
            page,
            lab,
            "saved.ipynb",
            LOAD,
            "%cluster start -n 2",
            search_cell("digits", 6, 3, 0.02),
            _DDP,
        )
        for index in range(4):
            run_cell(page, index)
        page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")
    finally:
        page.close()
    return "saved.ipynb"


def _reads_well(search: Locator, training: Locator) -> None:
    expect(search).to_contain_text("6 of 6 trials")
    expect(search.locator("tr", has_text="complete")).to_have_count(6)
    expect(training).to_contain_text("training")
    expect(training).to_contain_text("complete")
    for each in (search, training):
        chart = each.locator("img[src^='data:image/svg']").first
        until(lambda chart=chart: bool(chart.evaluate(_IS_DRAWN)), 10, "the chart")
        expect(each).not_to_contain_text("running")
        expect(each).not_to_contain_text("Error displaying widget")
        expect(each).not_to_contain_text("Loading widget")


def test_it_is_alive_without_a_kernel(lab: Lab, page: Page, saved: str) -> None:
    notebook = json.loads((lab.home.work / saved).read_text())
    notebook["metadata"] = {"kernelspec": {"name": "gone", "display_name": "Gone"}}
    (lab.home.work / "gone.ipynb").write_text(json.dumps(notebook))
    page.goto(f"{lab.address}/lab/tree/gone.ipynb?token={lab.token}&reset")
    page.locator(".jp-Dialog button", has_text="No Kernel").click()
    search = view_at(page, 2)
    expect(search).to_contain_text("6 of 6 trials")
    expect(search.locator("tr", has_text="complete")).to_have_count(6)
    training = view_at(page, 3)
    expect(training.locator("tr", has=page.locator(".ddl-lane"))).to_have_count(2)
    for each in (search, training):
        expect(each).to_have_attribute("data-state", "complete")
        expect(each.locator("svg").first).to_be_visible()
    take(page, "saved-without-kernel")


def test_a_record_that_takes_long_to_read_is_said_to_be_read(
    lab: Lab, page: Page, saved: str
) -> None:
    held: list[Callable[[], None]] = []
    holds = True

    def between(browser: WebSocketRoute) -> None:
        def pass_on(message: str | bytes) -> None:
            head = message if isinstance(message, str) else message[:200].decode(errors="replace")
            if holds and '"kind":"run"' in head:
                held.append(lambda: browser.send(message))
            else:
                browser.send(message)

        browser.connect_to_server().on_message(pass_on)

    page.route_web_socket(re.compile("/jupyter-ddl/"), between)
    page.goto(f"{lab.address}/lab/tree/{saved}?token={lab.token}&reset")
    output = cell_at(page, 2)
    expect(output).to_contain_text("server is reading the record of this run")
    expect(output).not_to_contain_text("out of reach")
    expect(output).to_contain_text("6 of 6 trials")  # what was saved
    until(lambda: held, 30, "news of the run")
    holds = False
    for send in held:
        send()
    expect(output.locator(".ddl-live[data-run]")).to_contain_text("6 of 6 trials")
    expect(output).not_to_contain_text("is reading")


def test_it_reads_well_as_a_web_page(lab: Lab, page: Page, saved: str) -> None:
    exporter = pytest.importorskip("nbconvert").HTMLExporter()
    notebook = nbformat.read(lab.home.work / saved, as_version=4)
    target = lab.home.work / "saved.html"
    target.write_text(exporter.from_notebook_node(notebook)[0])
    page.context.set_offline(True)
    page.goto(target.as_uri())
    outputs = page.locator(".jp-Cell-outputArea")
    _reads_well(outputs.nth(outputs.count() - 2), outputs.last)
    take(page, "saved-web-page")
    assert serious_findings(page, ".jp-Cell-outputArea .jp-RenderedHTML") == []


def test_it_reads_well_as_text(lab: Lab, saved: str) -> None:
    cells = nbformat.read(lab.home.work / saved, as_version=4).cells
    search, training = ("".join(_texts(cells[index])) for index in (2, 3))
    assert "6 of 6 trials" in search
    assert "best" in search.lower()
    assert "training" in training
    assert "running" not in search + training
    assert max(map(len, (search + training).splitlines())) <= 120


def _texts(cell: nbformat.NotebookNode) -> list[str]:
    return [output.data["text/plain"] for output in cell.outputs if "data" in output]
