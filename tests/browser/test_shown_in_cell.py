"""Figures and tables of ranks in a real JupyterLab: below the view, in it, and in a played page."""

from __future__ import annotations

import json

from playwright.sync_api import Locator, Page, expect

from tests.browser.lab_tools import (
    Lab,
    cell_at,
    open_notebook,
    run_cell,
    set_theme,
    take,
    wait_done,
)
from tests.until import until

PATIENCE_MS = 120_000
START = "%load_ext jupyter_ddl\n%cluster start -n 2"
TRAINING = """%%distribute ddp -n 2
import pathlib, time
import matplotlib.pyplot as plt
import pandas as pd
from IPython.display import Markdown, clear_output
from jupyter_ddl import report
from tqdm.auto import tqdm

losses = []
for epoch in tqdm(range(400), desc="epochs"):
    losses.append(2 * 0.97 ** epoch)
    time.sleep(0.1)
    report(step=epoch, loss=losses[-1])
    if epoch % 10 == 0:
        clear_output(wait=True)
        plt.figure(figsize=(5, 2.5))
        plt.plot(losses)
        plt.show()
    if pathlib.Path("enough").exists():
        break
display(Markdown("**Done**, with $x^2$"))
pd.DataFrame({"epoch": [epoch], "loss": [losses[-1]]})
"""
SEARCH = """%%distribute search --metric score --sampler grid -o s
import time
import matplotlib.pyplot as plt
from jupyter_ddl import choice, report

width = choice(1, 2, 3, 4)
plt.figure(figsize=(4, 2))
plt.plot([0, width])
plt.title(f"width {width}")
plt.show()
display({"text/html": "<img src=x onerror='window.hit=1'>", "text/plain": "a table"}, raw=True)
report(step=0, score=float(width))
time.sleep(3 * width)
"""


def outputs_of(page: Page, index: int) -> Locator:
    return cell_at(page, index).locator(".jp-OutputArea-child")


def saved_outputs(page: Page, lab: Lab, name: str, index: int) -> list[dict[str, object]]:
    page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")
    cell = json.loads((lab.home.work / name).read_text())["cells"][index]
    return [output.get("data", {}) for output in cell["outputs"]]


def test_a_trainings_figure_grows_below_its_view_and_stays_in_the_notebook(
    lab: Lab, page: Page
) -> None:
    page.set_viewport_size({"width": 1200, "height": 1500})
    open_notebook(page, lab, "shown.ipynb", START, TRAINING)
    run_cell(page, 0)
    run_cell(page, 1, wait=False)
    figure = cell_at(page, 1).locator(".jp-RenderedImage img")
    expect(figure).to_have_count(1, timeout=PATIENCE_MS)
    first = figure.get_attribute("src")
    until(lambda: figure.get_attribute("src") != first, 30, "the next figure in its place")
    bars = cell_at(page, 1).locator(".jp-RenderedText", has_text="epochs:")
    expect(bars).to_have_count(1, timeout=PATIENCE_MS)
    before = bars.inner_text()
    until(lambda: bars.inner_text() != before, 30, "the bar to go on")
    assert bars.inner_text().count("epochs:") == 1
    take(cell_at(page, 1), "shown-ddp-running-light")
    set_theme(page, "dark")
    take(cell_at(page, 1), "shown-ddp-running-dark")

    (lab.home.work / "enough").touch()
    wait_done(page, 1)

    expect(cell_at(page, 1).locator("table.dataframe")).to_have_count(1, timeout=PATIENCE_MS)
    expect(cell_at(page, 1).locator(".jp-RenderedMarkdown strong")).to_have_text(
        "Done", timeout=PATIENCE_MS
    )
    expect(figure).to_have_count(1, timeout=PATIENCE_MS)
    take(cell_at(page, 1), "shown-ddp-end-dark")
    set_theme(page, "light")
    take(cell_at(page, 1), "shown-ddp-end-light")
    kinds = [sorted(data)[0] for data in saved_outputs(page, lab, "shown.ipynb", 1) if data]
    assert kinds.count("image/png") == 1
    text = cell_at(page, 1).locator(".jp-OutputArea").inner_text()
    assert text.count("epochs:") == 1
    assert "Figure(" not in text


def test_a_trial_that_one_opens_shows_its_pictures_and_no_script(lab: Lab, page: Page) -> None:
    page.set_viewport_size({"width": 1200, "height": 1500})
    open_notebook(page, lab, "opened.ipynb", START, SEARCH, "%runs export last page.html")
    run_cell(page, 0)
    run_cell(page, 1, wait=False)
    page.wait_for_selector(".ddl-live[data-run]")
    view = page.locator(".ddl-live").first
    view.locator("summary", has_text="Output").click()
    expect(view.locator("tbody tr", has_text="complete").first).to_be_visible(timeout=PATIENCE_MS)
    view.get_by_label("Whose output").select_option("trial 0")
    expect(view.locator(".ddl-shown img")).to_have_count(1, timeout=PATIENCE_MS)
    expect(view.locator(".ddl-shown pre")).to_have_text("a table", timeout=PATIENCE_MS)
    take(view, "shown-search-light")
    set_theme(page, "dark")
    take(view, "shown-search-dark")
    wait_done(page, 1)
    expect(cell_at(page, 1).locator(".jp-RenderedImage img")).to_have_count(1, timeout=PATIENCE_MS)
    expect(cell_at(page, 1)).to_contain_text("s.show_outputs(trial=…)", timeout=PATIENCE_MS)
    take(cell_at(page, 1), "shown-search-end-dark")

    run_cell(page, 2)
    page.goto(f"file://{lab.home.work}/page.html")
    slider = page.get_by_label("Moment of the run")
    slider.evaluate(
        "(slider) => { slider.value = slider.max;"
        " slider.dispatchEvent(new Event('input', {bubbles: true})); }"
    )
    page.locator("summary", has_text="Output").click()
    expect(page.locator(".ddl-shown img")).to_have_count(1, timeout=PATIENCE_MS)
    expect(page.locator(".ddl-shown pre")).to_have_text("a table", timeout=PATIENCE_MS)
    assert page.evaluate("window.hit") is None
    take(page.locator(".ddl-live"), "shown-replayed")
