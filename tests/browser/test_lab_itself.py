"""The harness: a notebook opens in a real JupyterLab and runs a cell."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.browser.lab_tools import Lab, open_notebook, run_cell


def test_a_cell_of_a_notebook_runs(lab: Lab, page: Page) -> None:
    open_notebook(page, lab, "plain.ipynb", "print(6 * 7)")
    output = run_cell(page, 0)
    expect(output).to_have_text("42")
    assert len(lab.ask("api/kernels")) == 1
