"""Why a search went as it did, in the view: the real modules, answered from a real record."""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from playwright.sync_api import Locator, Page, Route, expect

from jupyter_ddl.client.run import Run
from jupyter_ddl.errors import JupyterDDLError
from jupyter_ddl.ledger.reducer import fold_all
from jupyter_ddl.protocol import view_messages as say
from jupyter_ddl.protocol.events import StepsTimed
from jupyter_ddl.store.paths import run_dir
from jupyter_ddl.views.analysis import analysis_of
from jupyter_ddl.views.answers import read_of
from jupyter_ddl.views.bundle import LIVE_DIR, live_css
from jupyter_ddl.views.channel import Columns
from tests.browser.lab_tools import serious_findings, take
from tests.leaks import Home
from tests.unit.cell.cell_makers import notebook
from tests.unit.recorded_runs import events_of_search, params_of, record_search
from tests.until import PATIENCE_S, until

_DARK = "@media (prefers-color-scheme: dark) { html { background: #111; } }"
_MOUNT = """async () => {
  const { mount } = await import("http://view.test/index.js");
  const { framed } = await import("http://view.test/columns.js");
  window.taken = [];
  const bytes = (text) => Uint8Array.from(atob(text), (each) => each.charCodeAt(0));
  let tell = () => {};
  const subscribe = (callback) => { tell = callback; return () => {}; };
  const send = async (message) => {
    const answer = await answered(message);
    if (answer !== null) tell(answer.frame ? framed(bytes(answer.frame)) : answer);
  };
  window.show = (message) => tell(message);
  mount(document.body, { send, subscribe }, {});
}"""

Show = Callable[[str], None]


@pytest.fixture
def show(page: Page, home: Home) -> Iterator[Show]:
    """Shows a run of this test's home by its id; whatever the view asks is answered."""

    def serve(route: Route) -> None:
        name = route.request.url.rpartition("/")[2]
        html = f"<!doctype html><meta charset=utf-8><style>{live_css()}{_DARK}</style><body>"
        body, kind = (
            (html, "text/html") if not name else ((LIVE_DIR / name).read_text(), "text/javascript")
        )
        route.fulfill(body=body, content_type=kind)

    asked: set[int] = set()

    def answered(message: dict[str, Any]) -> Any:
        if "id" not in message or message["id"] in asked:
            return None  # what is asked again is answered once, as a channel does
        asked.add(message["id"])
        ask = msgspec.convert(message, say.FromBrowser)
        try:
            return answer_of(ask)
        except JupyterDDLError as error:
            return msgspec.to_builtins(say.Denied(message["id"], error.code, error.message))

    def answer_of(ask: Any) -> Any:
        state = fold_all(Run(ask.run_id).events())
        if isinstance(ask, say.GetImportance | say.GetCurves | say.GetTrial):
            return msgspec.to_builtins(analysis_of(state, ask)())
        found = read_of(state, ask)
        if isinstance(found, Columns):
            return {"frame": base64.b64encode(found.frame()).decode()}
        return msgspec.to_builtins(found)

    def shown(run_id: str) -> None:
        snapshot = Run(run_id).snapshot()
        view = {"kind": "run", "seq": 1, "at_s": time.time(), "snapshot": snapshot}
        page.evaluate("message => show(message)", msgspec.to_builtins(view))
        expect(page.locator(".ddl-live")).to_have_attribute("data-run", run_id)

    trouble: list[str] = []
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.expose_function("answered", answered)
    page.route("http://view.test/**", serve)
    page.goto("http://view.test/")
    page.evaluate(_MOUNT)
    yield shown
    assert trouble == []


def section(page: Page, title: str) -> Any:
    """One of the sections, opened."""
    found = page.locator("details.ddl-section", has=page.get_by_text(title, exact=True))
    found.locator("> summary").click()
    return found


def in_sight(part: Locator) -> Locator:
    """A section is drawn while it is in sight."""
    part.locator("> summary").scroll_into_view_if_needed()
    return part


def drag_across(page: Page, plot: Locator, start: float, end: float) -> None:
    """Choose a part of a chart's horizontal axis, in shares of its width."""
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    assert box is not None
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + start * box["width"], y)
    page.mouse.down()
    page.mouse.move(box["x"] + end * box["width"], y, steps=4)
    page.mouse.up()


def test_each_section_tells_of_all_trials(page: Page, show: Show) -> None:
    record_search("why-a", events_of_search(300))
    show("why-a")
    assert page.locator(".ddl-why details[open]").count() == 0

    importance = section(page, "Importance")
    expect(importance.get_by_role("rowheader").first).to_have_text("lr")
    expect(importance).to_contain_text("complete trials apart, by val_acc (PED-ANOVA)")

    slices = section(page, "Slices")
    expect(slices.get_by_role("img")).to_have_count(3)
    label = slices.get_by_role("img").first.get_attribute("aria-label")
    assert label is not None
    assert label.startswith("val_acc against lr: 299 trials; best 1.000 at 0.01")
    drawn = slices.locator(".ddl-spread").first.locator("path.ddl-spot")
    counts = [(each.get_attribute("d") or "").count("M") for each in drawn.all()]
    assert counts == [0, 239, 60, 0]  # beside a brush, complete, pruned, running

    contour = section(page, "Contour")
    cells = contour.locator("tbody td").all_inner_texts()
    n_in_cells = sum(int(text.partition("(")[2].rstrip(")")) for text in cells if "(" in text)
    assert n_in_cells == 299
    contour.get_by_label("Parameter of the rows").select_option("lr")
    expect(contour).to_contain_text("Choose two different parameters.")
    contour.get_by_label("Parameter of the rows").select_option("width")

    distribution = section(page, "Distribution")
    expect(distribution).to_contain_text("239 complete trials: half of them have at most")

    trade_off = section(page, "Trade-off")
    expect(trade_off.get_by_role("button", name="less is better")).to_be_visible()
    expect(trade_off).to_contain_text("On the front: ")

    curves = section(page, "Curves")
    expect(curves).to_contain_text("40 trials: the best ones and those that began last.")
    assert serious_findings(page, ".ddl-live") == []
    drag_across(page, slices.get_by_role("img").nth(2), 0.1, 0.4)  # one selection for all of them
    expect(in_sight(slices)).to_contain_text(re.compile(r"Chosen: 1?\d\d of 299 trials\."))
    chosen = re.findall(r"Chosen: .* trials\.", slices.inner_text())[0]
    expect(in_sight(contour)).to_contain_text(chosen)
    expect(in_sight(distribution)).to_contain_text("of 239 complete trials")
    expect(in_sight(trade_off)).to_contain_text(chosen)
    expect(in_sight(curves)).to_contain_text(" of 40 trials")
    expect(in_sight(importance)).to_contain_text("All trials are weighed, whichever are chosen.")
    expect(page.locator(".ddl-wide .ddl-readout")).to_have_text(chosen[8:-1])
    take(page.locator(".ddl-live"), "why_brushed")
    page.get_by_role("button", name="clear", exact=True).click()
    expect(in_sight(slices)).not_to_contain_text("Chosen")
    expect(in_sight(importance).get_by_text("All trials are weighed")).to_be_hidden()
    # A part of the history is a choice, too; a click on a mark opens its trial.
    history = page.locator(".ddl-charts").first.get_by_role("img").first
    drag_across(page, history, 0.3, 0.6)
    expect(in_sight(slices)).to_contain_text(" of 299 trials.")
    page.get_by_role("button", name="whole axis").click()
    expect(in_sight(slices)).not_to_contain_text("Chosen")
    history.focus()
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    card = page.get_by_role("region", name="trial 0", exact=True)
    expect(card).to_be_visible()
    page.keyboard.press("Escape")
    contour.locator("tbody td button:enabled").first.click()
    expect(page.locator(".ddl-card")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator(".ddl-card")).to_be_hidden()
    curves.get_by_label("Metric").select_option("loss")
    expect(curves).to_contain_text("40 trials: the best ones and those that began last.")
    expect(curves.locator("figcaption .ddl-chart-title")).to_have_text("loss")
    curves.get_by_label("What curves go over").select_option("time")
    expect(curves.get_by_role("img")).to_contain_text("seconds")
    expect(curves.get_by_role("img")).to_contain_text("0.2")  # of a trial of 0.3 seconds
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        take(page.locator(".ddl-live"), f"why_{scheme}")
        assert serious_findings(page, ".ddl-live") == []
    for width in (760, 320):
        page.set_viewport_size({"width": width, "height": 1000})
        _fits(page, width)
        assert serious_findings(page, ".ddl-live") == []
    take(page.locator(".ddl-live"), "why_narrow")


def _fits(page: Page, width: int) -> None:
    """Charts are drawn anew a moment after the page has another width."""
    until(lambda: page.evaluate("document.documentElement.scrollWidth") <= width, PATIENCE_S)


def test_a_trial_is_shown_in_full_and_can_be_copied_as_a_cell(page: Page, show: Show) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    timed = StepsTimed(3, 1, 0, 1.7e9, 200, 2.0, 0.74, None, 6400, n_workers=1)
    record_search("why-b", [*events_of_search(40), timed])
    logs = run_dir("why-b") / "logs"
    logs.mkdir(parents=True)
    (logs / "a.log").write_text("")
    show("why-b")
    slices = section(page, "Slices")
    plot = slices.get_by_role("img").nth(2)  # of the width, which grows with the number
    expect(plot).to_be_visible()
    plot.focus()
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    expect(slices.locator(".ddl-spread").nth(2)).to_contain_text("trial 3: 11")
    page.keyboard.press("Enter")
    card = page.get_by_role("region", name="trial 3", exact=True)
    expect(card).to_contain_text("Trial 3 · complete")
    expect(card).to_contain_text("w1")
    told = (
        "37 % of a step waits for data: try num_workers=2 or a cheaper transform; 3,200 samples/s"
    )
    expect(card).to_contain_text(told)
    expect(card.locator(".ddl-chart-title")).to_have_text(["val_acc", "loss"])
    expect(card).to_contain_text("Nothing was printed.")
    take(card, "trial_card")
    assert serious_findings(page, ".ddl-live") == []
    card.get_by_role("button", name="Copy as cell").click()
    expect(card).to_contain_text("paste it into a cell")
    cell = card.locator(".ddl-code").text_content() or ""
    names = notebook()
    exec(cell, names)
    assert {name: names[name] for name in params_of(3)} == params_of(3)
    page.keyboard.press("Escape")
    expect(card).to_be_hidden()

    page.get_by_label("Number of a trial").fill("99")
    page.keyboard.press("Enter")
    expect(page.get_by_role("region", name="trial 99", exact=True)).to_contain_text("no trial 99")


def test_where_there_is_nothing_a_sentence_stands(page: Page, show: Show) -> None:
    record_search("why-c", events_of_search(values=[0.5, float("nan")]), ends=False)
    show("why-c")
    expect(section(page, "Importance")).to_contain_text("Importance needs 10 complete trials")
    expect(section(page, "Slices").get_by_role("img").first).to_be_visible()
    expect(section(page, "Distribution")).to_contain_text("1 complete trials: half of them")
    expect(section(page, "Trade-off")).to_contain_text("On the front: 1 of 1 trials (0).")
