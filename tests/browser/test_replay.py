"""Recordings in a real JupyterLab, and a page of one in a browser that has nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from jupyter_ddl.protocol.events import Notice, RunSubmitted, TrialCreated
from jupyter_ddl.protocol.run import Provenance
from jupyter_ddl.recording.lines import Fact, Printed, Recording, read_recording
from jupyter_ddl.recording.page import save_page
from jupyter_ddl.recording.write import head_of
from tests.browser.lab_tools import (
    Lab,
    cell_at,
    open_notebook,
    run_cell,
    serious_findings,
    set_theme,
    take,
)
from tests.browser.panel_tools import must_be_fresh
from tests.unit.ledger.event_makers import begun, search_spec, started
from tests.unit.views.view_payloads import PAYLOADS
from tests.until import until

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
TRAINING = EXAMPLES / "training-64-ranks.jsonl.gz"
SEARCH = EXAMPLES / "search-500-trials.jsonl.gz"
REPLAY = f"import jupyter_ddl as ddl\nddl.replay({str(SEARCH)!r}, speed={{}})"

OpenPage = Callable[..., Page]


def n_finished(page: Page) -> int:
    bar = page.locator(".ddl-live [role=progressbar]")
    return int(bar.get_attribute("aria-valuenow") or 0)


def place(page: Page) -> float:
    return float(page.get_by_label("Moment of the run").input_value())


def seek(page: Page, at_s: float) -> None:
    slider = page.get_by_label("Moment of the run")
    slider.evaluate(
        "(slider, at) => { slider.value = String(at);"
        " slider.dispatchEvent(new Event('input', {bubbles: true})); }",
        at_s,
    )


def view_of(page: Page) -> Locator:
    page.wait_for_selector(".ddl-live[data-run]")
    return page.locator(".ddl-live")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both examples as pages."""
    folder = tmp_path_factory.mktemp("pages")
    for path, speed in ((TRAINING, 32.0), (SEARCH, 32.0)):
        save_page(read_recording(path), folder / f"{path.name.split('.')[0]}.html", speed=speed)
    return folder


@pytest.fixture
def open_page(chromium: Browser, pages: Path) -> Iterator[OpenPage]:
    """Opens a page without a network; whatever it asks for or complains of fails the test."""
    contexts = []
    trouble: list[str] = []

    def opened(name: str, theme: str = "light", width: int = 1100, motion: bool = True) -> Page:
        context = chromium.new_context(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if theme == "dark" else "light",
            reduced_motion="no-preference" if motion else "reduce",
            offline=True,
        )
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on("console", lambda message: trouble.append(message.text))
        page.on("request", lambda request: trouble.extend(_foreign(request.url)))
        page.goto((pages / f"{name}.html").as_uri())
        return page

    yield opened
    for context in contexts:
        context.close()
    assert trouble == []


def _foreign(url: str) -> list[str]:
    return [] if url.startswith(("file:", "data:")) else [url]


def test_a_page_plays_to_the_end_and_again(open_page: OpenPage) -> None:
    page = open_page("search-500-trials")
    view = view_of(page)
    expect(page.locator(".ddl-origin")).to_have_text("Replay · simulated")
    expect(page.get_by_role("button", name="Stop")).to_have_count(0)
    until(lambda: n_finished(page) > 20, 20, "20 trials")
    expect(view).to_have_attribute("data-state", "complete")
    assert n_finished(page) == 500
    # Two seconds of playing are over between two looks of a busy machine: the page keeps them all.
    page.evaluate(
        "() => { window.shown = []; new MutationObserver(() => window.shown.push(Number("
        "document.querySelector('.ddl-live [role=progressbar]').ariaValueNow))).observe("
        "document.querySelector('.ddl-live'), {attributes: true, subtree: true}); }"
    )
    page.get_by_role("button", name="Play again").click()
    until(lambda: page.evaluate("Math.min(...window.shown)") < 400, 20, "the run's beginning")
    until(lambda: page.evaluate("window.shown.at(-1)") == 500, 20, "its end")
    expect(view).to_have_attribute("data-state", "complete")


def test_any_moment_can_be_looked_at_without_playing(open_page: OpenPage) -> None:
    page = open_page("search-500-trials", motion=False)
    view = view_of(page)
    assert place(page) == 0.0  # who wants no motion begins with a still picture
    seek(page, 60)
    until(lambda: n_finished(page) > 150, 10, "the middle of the run")
    middle = n_finished(page)
    seek(page, 41)  # few of many trials are good so far, and the best of them can be seen
    expect(view.locator("circle").first).to_be_visible()
    # The timeline is the slider's axis: a click half-way is the moment in the middle.
    box = page.locator(".ddl-history").first.bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + 78 + (box["width"] - 88) / 2, box["y"] + box["height"] / 2)
    slider = page.get_by_label("Moment of the run")
    length_s = float(slider.get_attribute("max") or 0)
    assert place(page) == pytest.approx(length_s / 2, rel=0.01)
    assert page.locator(".ddl-history rect").count() > 300
    seek(page, 20)
    until(lambda: 0 < n_finished(page) < middle, 10, "an earlier moment")
    expect(view.locator(".ddl-times")).to_contain_text("20 s")
    seek(page, 10_000)
    expect(view).to_have_attribute("data-state", "complete")
    view.get_by_label("Filter trials by state").fill("failed")
    rows = view.get_by_label("Trials", exact=True).locator("tbody tr")
    expect(rows.first).to_contain_text("FloatingPointError")
    view.locator("summary", has_text="Output").click()
    expect(view.locator(".ddl-log")).to_contain_text("epoch 27: loss")
    assert place(page) > 100
    # What a run answers, its recording does: a bar opens its trial, sections tell of all of them.
    page.locator(".ddl-history rect").first.click()
    card = view.locator("section.ddl-card")
    expect(card).to_contain_text("only the best trials have their cell in it")
    seek(page, 10_000)
    view.get_by_label("Number of a trial").fill("401")
    view.get_by_label("Number of a trial").press("Enter")
    expect(card.locator(".ddl-code")).to_contain_text("lr = 0.00352")
    expect(card.locator(".ddl-chart-title")).to_have_text(["loss", "acc"])
    curves = view.locator("details", has=page.get_by_text("Curves", exact=True))
    curves.locator("> summary").click()
    expect(curves).to_contain_text("40 trials: the best ones and those that began last.")


def test_playing_can_be_paused_by_the_keyboard(open_page: OpenPage) -> None:
    page = open_page("training-64-ranks")
    view_of(page)
    until(lambda: place(page) > 2, 20, "the first seconds")
    page.get_by_role("button", name="Pause").press("Enter")
    expect(page.get_by_role("button", name="Play", exact=True)).to_be_focused()
    stands_at = place(page)
    page.wait_for_timeout(700)
    assert place(page) == stands_at
    page.get_by_label("Speed").select_option("0.5")
    page.get_by_role("button", name="Play", exact=True).press("Enter")
    until(lambda: place(page) > stands_at, 10, "it to go on")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1100])
@pytest.mark.parametrize(
    ("name", "at_s"), [("training-64-ranks", 112.0), ("search-500-trials", 62.0)]
)
def test_a_page_reads_well(
    open_page: OpenPage, name: str, at_s: float, theme: str, width: int
) -> None:
    page = open_page(name, theme, width, motion=False)
    view = view_of(page)
    seek(page, at_s)
    expect(view.locator(".ddl-strip").first).to_be_visible()
    page.wait_for_timeout(700)  # the table of trials is asked for
    take(page.locator("body"), f"replay-{name.split('-')[0]}-{theme}-{width}")
    assert serious_findings(page, "body") == []
    machines = view.get_by_label("Machines", exact=True)  # many of them are scrolled
    assert machines.evaluate("strips => strips.clientHeight") <= 430
    gpus = machines.locator(".ddl-strip-gpu")
    if gpus.count() > 0:
        expect(gpus.first).to_have_attribute("title", re.compile(r"H100 .* · SM 1,980 MHz"))
    assert page.evaluate("document.documentElement.scrollWidth") <= width, "nothing sticks out"


def test_a_page_without_scripts_shows_how_the_run_ended(chromium: Browser, pages: Path) -> None:
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((pages / "search-500-trials.html").as_uri())
    expect(page.locator("#replay")).to_contain_text("500 of 500 trials")
    expect(page.locator("header")).to_contain_text("A simulated run")
    context.close()


def test_hostile_texts_of_a_run_are_only_text(chromium: Browser, tmp_path: Path) -> None:
    payloads = [each for each in PAYLOADS if "\ud800" not in each][::7]
    bad = payloads[0] + payloads[20]
    spec = search_spec(name=bad, provenance=Provenance(line=bad, cell="\n".join(payloads)))
    facts: list[Fact] = [RunSubmitted(spec, 1000.0), started()]
    facts += [TrialCreated(0, {bad: bad, "__proto__": "x"}, 1002.0), begun(0)]
    facts += [Printed(1003.0, 0, tuple(payloads)), Notice(1004.0, bad)]
    recording = Recording(head_of(facts, "recorded", (bad,)), tuple(facts))
    save_page(recording, tmp_path / "bad.html", speed=1000.0)
    page = chromium.new_page()
    trouble: list[str] = []
    page.on("console", lambda message: trouble.append(message.text))
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("dialog", lambda dialog: (trouble.append(dialog.message), dialog.dismiss())[1])
    page.goto((tmp_path / "bad.html").as_uri())
    view = view_of(page)
    view.locator("summary", has_text="Output").click()
    expect(view.locator(".ddl-log")).to_contain_text("alert(1)")
    expect(view.locator(".ddl-title")).to_contain_text("<script>")
    assert page.evaluate("document.scripts.length") == 4
    assert page.evaluate("document.querySelectorAll('iframe, img, object, form').length") == 0
    assert trouble == []
    page.close()


def test_a_cell_plays_without_a_cluster_again_and_again_whatever_becomes_of_its_kernel(
    lab: Lab, page: Page
) -> None:
    must_be_fresh()
    page.set_viewport_size({"width": 1200, "height": 1500})
    open_notebook(page, lab, "replay.ipynb", REPLAY.format(2), REPLAY.format(200), "1 + 1")
    run_cell(page, 0)
    view = view_of(page)
    until(lambda: place(page) > 2, 30, "the first seconds")
    expect(page.locator(".ddl-origin")).to_have_text("Replay · simulated")
    expect(page.get_by_role("button", name="Stop")).to_have_count(0)
    run_cell(page, 2)  # the kernel is free meanwhile
    seek(page, 60)
    until(lambda: n_finished(page) > 150, 10, "the middle of the run")
    take(view, "replay-cell-light")
    set_theme(page, "dark")
    take(cell_at(page, 0), "replay-cell-dark")
    set_theme(page, "light")
    page.evaluate("() => window.jupyterapp.commands.execute('notebook:clear-all-cell-outputs')")

    run_cell(page, 1)
    view = view_of(page)
    expect(view).to_have_attribute("data-state", "complete")
    page.get_by_label("Speed").select_option("1")
    page.get_by_role("button", name="Play again").click()
    expect(view).to_have_attribute("data-state", "running")
    page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")
    page.evaluate(
        "() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()"
    )
    page.reload()
    view = view_of(page)
    until(lambda: n_finished(page) > 20, 20, "the player, without a kernel that knows of it")
    seek(page, 10_000)
    expect(view).to_have_attribute("data-state", "complete")
    # The server keeps some of them only.
    for kept in (lab.home.root).rglob("timelines/*"):
        kept.unlink()
    page.reload()
    output = cell_at(page, 1).locator(".jp-Cell-outputArea")
    expect(output).to_contain_text("This recording is not kept by JupyterLab’s server any more")
    expect(output).to_contain_text("Simulated run, played from a recording.")
    expect(output).to_contain_text("500 of 500 trials")
    expect(output).not_to_contain_text("Error displaying widget")
    take(output, "replay-end")
    assert list((lab.home.root).rglob("ledger.ddl")) == []
