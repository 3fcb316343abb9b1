"""The live view in the cell of a real JupyterLab, while the cell runs and afterwards."""

from __future__ import annotations

import contextlib
import json
import time

import psutil
import pytest
from playwright.sync_api import Error, Locator, Page, expect

from tests.browser.lab_tools import (
    Lab,
    cell_at,
    open_notebook,
    press_twice,
    run_cell,
    set_theme,
    take,
    view_at,
    wait_done,
)
from tests.leaks import processes_of
from tests.until import until

START = "%load_ext jupyter_ddl\n%cluster start -n 2"
SEARCH = """%%distribute search --metric acc --trials 200 --sampler tpe --name digits
import math, random, time
from jupyter_ddl import choice, loguniform, report, uniform
lr = loguniform(1e-4, 1e-1, default=1e-2)
width = choice(32, 64, 128, 256)
drop = uniform(0.0, 0.6)
for step in range(8):
    time.sleep(0.15)
    acc = 0.95 - 0.05 * abs(math.log10(lr) + 2.3) - 0.1 * drop * drop - 0.3 * math.exp(-step / 2)
    print(f"epoch {step}: acc {acc:.4f}")
    report(step=step, acc=acc + random.random() * 0.02)
"""
SLOW_SEARCH = SEARCH.replace("range(8)", "range(80)").replace("--trials 200", "--trials 4")
DDP = """%%distribute ddp -n 2 --name blobs
import math, random, time
from jupyter_ddl import checkpoint, rank, report
for step in range(400):
    time.sleep(0.1)
    report(step=step, train_loss=2.3 * math.exp(-step / 25) + 0.05 * random.random())
    if step % 10 == 0:
        checkpoint(step=step, done=step)
"""
STAGES = """%%distribute ddp -n 2 --strategy pipeline --microbatches 4 --name stages
import time, torch
from jupyter_ddl import prepare_step, report
class Layer(torch.nn.Linear):
    def forward(self, x):
        time.sleep(0.004)
        return super().forward(x)
model = torch.nn.Sequential(*(Layer(8, 8) for _ in range(4)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
step = prepare_step(model, torch.nn.functional.mse_loss, optimizer)
for number in range(2000):
    report(step=number, loss=float(step(torch.ones(16, 8), torch.zeros(16, 8))))
"""


@pytest.fixture
def errors(page: Page) -> list[str]:
    """What went wrong in our scripts: JupyterLab's own sometimes trips over its side bars.

    The view in a cell is a module with an address of its own kind, the panel has our name in it.
    """
    found: list[str] = []

    def note(error: Error) -> None:
        stack = f"{error.message} {error.stack}"
        if "blob:" in stack or "jupyter_ddl" in stack:
            found.append(stack)

    page.on("pageerror", note)
    return found


def n_finished(view: Locator) -> int:
    return int(view.locator("[role=progressbar]").get_attribute("aria-valuenow") or 0)


def zygote_with_a_trial(lab: Lab) -> psutil.Process:
    """One that is a fork of the zygotes' source, and has forked a process for a trial.

    The trial is half through: it takes 1.2 s, and one that has just told its end is not lost.
    """

    def is_half_through(trial: psutil.Process) -> bool:
        return 0.2 < time.time() - trial.create_time() < 0.8

    def found() -> psutil.Process | None:
        with contextlib.suppress(psutil.NoSuchProcess):  # one that has just ended
            below = {
                each.pid: each
                for each in processes_of(lab.home)
                if "jupyter_ddl.ranks.zygote_source" in each.cmdline()
            }
            forks = (each for each in below.values() if each.ppid() in below)
            for each in forks:
                if any(map(is_half_through, each.children())):
                    return each
        return None

    zygote = until(found, 20, "a trial that is half through")
    assert zygote is not None
    return zygote


def take_in_both_themes(page: Page, view: Locator, name: str) -> None:
    """Pictures of a view; the page is dark afterwards."""
    take(view, f"{name}-light")
    set_theme(page, "dark")
    take(view, f"{name}-dark")


def button(view: Locator, name: str) -> Locator:
    return view.get_by_role("button", name=name, exact=True)


def saved(page: Page, lab: Lab, name: str, index: int) -> dict[str, object]:
    """The outputs of a cell as the notebook file has them."""
    page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")
    notebook = json.loads((lab.home.work / name).read_text())
    return dict(notebook["cells"][index])


def test_a_search_is_watched_and_stopped_while_its_cell_runs(
    lab: Lab, page: Page, errors: list[str]
) -> None:
    page.set_viewport_size({"width": 1200, "height": 1400})
    open_notebook(page, lab, "search.ipynb", START, SLOW_SEARCH, SEARCH)
    run_cell(page, 0)
    run_cell(page, 1, wait=False)
    view = view_at(page, 1)
    stop = view.get_by_role("button", name="Stop trial 0")
    stop.click()
    expect(view.locator(".ddl-counts")).to_contain_text("cancelled")
    assert view.get_attribute("data-state") == "running"
    button(view, "Other ways to stop").click()
    press_twice(button(view, "Stop now"), "Really stop now?")
    wait_done(page, 1, 20)

    run_cell(page, 2, wait=False)
    view = view_at(page, 2)
    until(lambda: n_finished(view) >= 6, 60, "six trials")
    line = view.locator(".ddl-dots").first.get_attribute("d")
    before = n_finished(view)
    until(lambda: n_finished(view) > before, 30, "one more trial")
    until(lambda: view.locator(".ddl-dots").first.get_attribute("d") != line, 10, "a new point")
    assert view.locator(".ddl-strand").count() >= 6
    zygote_with_a_trial(lab).kill()
    expect(view.locator(".ddl-counts .ddl-is-evicted")).to_contain_text("evicted and tried again")
    view.locator("summary", has_text="Output").click()
    expect(view.locator(".ddl-log")).to_contain_text("epoch")
    take_in_both_themes(page, view, "cell-search")
    button(view, "Other ways to stop").click()
    button(view, "Keep best and finish").click()
    wait_done(page, 2, 20)
    # The view stays: with curves, the table and the log, and nothing to stop any more.
    expect(view).to_contain_text("finished early by user")
    expect(view).to_have_attribute("data-state", "complete")
    expect(view.locator(".ddl-strand").first).to_be_attached()
    expect(view.locator(".ddl-log")).to_contain_text("epoch")
    expect(button(view, "Stop now")).to_be_hidden()
    take(cell_at(page, 2), "cell-search-end-dark")
    set_theme(page, "light")
    take(cell_at(page, 2), "cell-search-end-light")
    cell = saved(page, lab, "search.ipynb", 2)
    assert len(json.dumps(cell["outputs"]).encode()) <= 64 * 1024
    assert "widget-view" not in json.dumps(cell)
    assert errors == []


def test_a_training_is_watched_rank_by_rank(lab: Lab, page: Page, errors: list[str]) -> None:
    page.set_viewport_size({"width": 1200, "height": 1200})
    open_notebook(page, lab, "ddp.ipynb", START, DDP)
    run_cell(page, 0)
    run_cell(page, 1, wait=False)
    view = view_at(page, 1)
    lanes = view.locator("tbody tr", has=page.locator(".ddl-lane"))
    expect(lanes).to_have_count(2)
    expect(lanes.first).to_contain_text("running")
    expect(lanes.first).to_contain_text("ago")
    path = view.locator(".ddl-line").first
    drawn = path.get_attribute("d") or ""
    until(lambda: len(path.get_attribute("d") or "") > len(drawn) + 20, 20, "a longer curve")
    expect(view.locator(".ddl-strip").first).to_contain_text("CPU")
    take_in_both_themes(page, view, "cell-ddp")
    set_theme(page, "light")
    page.evaluate("() => window.jupyterapp.commands.execute('application:toggle-left-area')")
    page.set_viewport_size({"width": 520, "height": 1400})
    # Lab lays its panels out a while after the window has changed.
    until(lambda: 350 <= view.evaluate("view => view.clientWidth") <= 420, 10, "a narrow view")
    take(view, "cell-ddp-narrow")
    assert view.evaluate("view => view.scrollWidth <= view.clientWidth + 1")
    button(view, "Other ways to stop").click()
    button(view, "Stop after this epoch").click()
    wait_done(page, 1, 20)
    expect(cell_at(page, 1)).to_contain_text("complete")
    assert errors == []


def test_stages_of_a_pipeline_are_drawn_while_it_runs_and_afterwards(
    lab: Lab, page: Page, errors: list[str]
) -> None:
    open_notebook(page, lab, "stages.ipynb", START, STAGES)
    run_cell(page, 0)
    run_cell(page, 1, wait=False)
    view = view_at(page, 1)
    stages = view.get_by_role("img", name="What each rank of the pipeline computes")
    expect(stages).to_be_visible()
    former = stages.get_attribute("src")
    until(lambda: stages.get_attribute("src") != former, 20, "a newer batch")
    assert stages.evaluate("image => image.complete && image.naturalWidth") >= 300
    take_in_both_themes(page, view, "cell-stages")
    set_theme(page, "light")
    button(view, "Other ways to stop").click()
    button(view, "Stop after this epoch").click()
    wait_done(page, 1, 20)
    page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")
    page.reload()
    expect(view_at(page, 1).get_by_role("img", name="What each rank of the")).to_be_visible()
    assert errors == []


def test_a_page_that_is_loaded_again_shows_the_run_as_it_is(lab: Lab, page: Page) -> None:
    open_notebook(page, lab, "again.ipynb", START, SEARCH.replace("search ", "search -a "), "1 + 1")
    run_cell(page, 0)
    run_cell(page, 1)
    view = view_at(page, 1)
    until(lambda: n_finished(view) >= 2, 60, "two trials")
    page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")
    before = n_finished(view)
    page.reload()
    view = view_at(page, 1)
    assert n_finished(view) >= before
    until(lambda: n_finished(view) > before, 30, "news after the reload")
    button(view, "Stop").click()
    expect(view).to_have_attribute("data-state", "cancelled")
    run_cell(page, 2)
    page.wait_for_timeout(6_000)
    expect(view.locator(".ddl-facts")).to_contain_text("search")
    view.locator("summary", has_text="Output").click()
    expect(view.locator(".ddl-log")).to_contain_text("epoch")


def test_a_page_that_is_loaded_again_while_the_cell_runs_shows_and_stops_it(
    lab: Lab, page: Page
) -> None:
    open_notebook(page, lab, "busy.ipynb", START, SEARCH)
    run_cell(page, 0)
    run_cell(page, 1, wait=False)
    view = view_at(page, 1)
    until(lambda: n_finished(view) >= 2, 60, "two trials")
    page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")
    before = n_finished(view)
    page.reload()
    view = view_at(page, 1)
    until(lambda: n_finished(view) > before, 30, "news after the reload")
    button(view, "Other ways to stop").click()
    press_twice(button(view, "Stop now"), "Really stop now?")
    expect(view).to_have_attribute("data-state", "cancelled")
