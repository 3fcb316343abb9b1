"""The live view without Lab: rows hold still, stops can be undone, metrics are picked."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from playwright.sync_api import Page, Route, expect

import tests.unit.views.view_samples as samples
from jupyter_ddl.protocol.snapshot import Counts, RunSnapshot
from jupyter_ddl.views.bundle import LIVE_DIR, live_css
from tests.browser.lab_tools import serious_findings, take

_FRAME_MS = 50
_MOUNT = """async () => {
  const { mount } = await import("http://view.test/index.js");
  window.sent = [];
  const subscribe = (take) => { window.take = take; return () => {}; };
  const channel = { send: (message) => sent.push(message), subscribe };
  mount(document.body, channel, {});
}"""


@pytest.fixture
def view(page: Page) -> Iterator[Page]:
    """A page with an empty view: ``take`` gives it a message, ``sent`` has what it says."""

    def answer(route: Route) -> None:
        name = route.request.url.rpartition("/")[2]
        if not name:
            body, kind = (
                f"<!doctype html><meta charset=utf-8><style>{live_css()}</style><body>",
                "text/html",
            )
        else:
            body, kind = (LIVE_DIR / name).read_text(), "text/javascript"
        route.fulfill(body=body, content_type=kind)

    trouble: list[str] = []
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.route("http://view.test/**", answer)
    page.goto("http://view.test/")
    page.evaluate(_MOUNT)
    yield page
    assert trouble == []


def show(view: Page, snapshot: RunSnapshot) -> None:
    """Draw a snapshot in a page whose clock stands still."""
    message = {"kind": "run", "seq": snapshot.seq, "at_s": samples.NOW_S, "snapshot": snapshot}
    view.evaluate("message => take(message)", msgspec.to_builtins(message))
    view.clock.run_for(_FRAME_MS)
    expect(view.locator(".ddl-live")).to_have_attribute("data-seq", str(snapshot.seq))


def search(seq: int, running: range) -> RunSnapshot:
    """Some of 40 trials run, those before them have ended."""
    drawn = samples.search(40, running.stop, running=frozenset(running), pruned=frozenset())
    rows = tuple(
        msgspec.structs.replace(row, state="running" if row.number in running else "complete")
        for row in drawn.rows
    )
    counts = Counts(complete=running.start, running=len(running))
    return msgspec.structs.replace(drawn, seq=seq, state="running", rows=rows, counts=counts)


def stops(view: Page) -> list[Any]:
    return [m["trial"] for m in view.evaluate("sent") if m["kind"] == "stop_trial"]


def test_a_stop_means_the_row_that_one_pointed_at_and_can_be_undone(view: Page) -> None:
    # Time stands still but for what this test lets pass: the seconds to undo a stop are the view's.
    view.clock.install()
    view.clock.pause_at(time.time() + 3600)
    show(view, search(1, range(2, 6)))
    button = view.get_by_role("button", name="Stop trial 3", exact=True)
    button.scroll_into_view_if_needed()
    box = button.bounding_box()
    assert box is not None
    view.mouse.move(box["x"] + 4, box["y"] + 4)
    show(view, search(2, range(3, 7)))  # trial 2 has ended, and trial 6 has begun
    assert button.bounding_box() == box
    view.mouse.down()
    view.evaluate("document.querySelector('[data-trial=\"3\"]').dataset.trial = '4'")
    view.mouse.up()
    undo = view.get_by_role("button", name="Undo stopping trial 3", exact=True)
    said = view.locator("[role=status]", has_text="rial 3")
    show(view, search(3, range(3, 7)))
    expect(undo).to_be_visible()
    expect(said).to_have_text("Trial 3 is stopped in 3 seconds; press again to undo.")
    undo.press("Enter")
    expect(said).to_have_text("Trial 3 goes on.")
    view.mouse.move(2, 2)
    view.clock.run_for(3_500)
    assert stops(view) == []
    button.focus()
    show(view, search(4, range(3, 8)))
    button.press("Enter")
    expect(undo).to_be_focused()
    view.clock.run_for(2_900)
    assert stops(view) == []
    view.clock.run_for(200)
    assert set(stops(view)) == {3}
    show(view, search(5, range(4, 9)))  # trial 3 has ended: its button goes, the focus stays near
    expect(view.get_by_label("Trials", exact=True)).to_be_focused()
    # One that begins meanwhile comes below the others; all are sorted once nobody is there.
    newest = view.get_by_role("button", name="Stop trial 8", exact=True)
    lines = view.get_by_label("Trials", exact=True).locator("tbody tr")
    expect(lines.first.locator("td").first).to_have_text("2")
    expect(lines.last.locator(newest)).to_be_visible()
    view.evaluate("document.activeElement.blur()")
    expect(lines.first.locator("td").first).to_have_text("4")
    expect(newest).to_be_visible()


def test_a_search_without_a_value_draws_no_empty_chart(view: Page) -> None:
    drawn = search(1, range(2, 3))
    rows = tuple(
        msgspec.structs.replace(row, state="failed", value=None, params={"x": 0.1 * row.number})
        for row in drawn.rows
    )
    failed = {"state": "failed", "rows": rows, "curve": (), "learning": (), "best": None}
    shown = msgspec.structs.replace(drawn, counts=Counts(failed=len(rows)), **failed)
    message = {"kind": "run", "seq": 1, "at_s": samples.NOW_S, "snapshot": shown}
    view.evaluate("message => take(message)", msgspec.to_builtins(message))
    expect(view.get_by_label("Trials", exact=True)).to_contain_text("failed")
    expect(view.locator("figure:visible")).to_have_count(0)
    for field in view.locator("select:visible").all():
        expect(field.locator("option")).not_to_have_count(0)


def test_every_parameter_has_a_column(view: Page) -> None:
    drawn = samples.search(8, 8, running=frozenset(), pruned=frozenset())
    names = [f"p{n}" for n in range(30)]
    rows = tuple(
        msgspec.structs.replace(row, params=dict.fromkeys(names, row.number + 0.5))
        for row in drawn.rows
    )
    show(view, msgspec.structs.replace(drawn, seq=1, rows=rows))
    heads = view.get_by_role("region", name="Trials").get_by_role("columnheader")
    assert heads.all_inner_texts()[3:33] == names
    for width in (320, 1100):
        view.set_viewport_size({"width": width, "height": 900})
        assert view.evaluate("document.documentElement.scrollWidth") <= width
        take(view, f"live-parameters-{width}")


def test_of_many_metrics_one_picks_and_what_is_no_number_breaks_nothing(view: Page) -> None:
    nothing = [[step, None] for step in range(9)]
    curves: dict[str, Any] = {"val_acc": [[0, 0.1], [1, None], [2, 0.3]], "__proto__": nothing}
    curves |= {f"layer{n}/norm of a rather long name": [[0, n], [1, 1e300]] for n in range(22)}
    drawn = msgspec.to_builtins(samples.group())
    drawn |= {"series": curves, "metrics": list(curves), "n_metrics": 300, "seq": 1}
    message = {"kind": "run", "seq": 1, "at_s": samples.NOW_S, "snapshot": drawn}
    # As text: a key of this name in a literal would be another thing.
    view.evaluate("text => take(JSON.parse(text))", msgspec.json.encode(message).decode())
    charts = view.locator(".ddl-charts .ddl-chart-title")
    assert charts.all_inner_texts()[:2] == ["val_acc", "__proto__"]
    expect(charts).to_have_count(4)
    summary = view.locator(".ddl-picker summary")
    expect(summary).to_have_text("Metrics: 4 of 300")
    empty = view.get_by_role("img", name="__proto__")
    expect(empty).to_have_attribute("aria-label", "__proto__: no numbers")
    gap = view.get_by_role("img", name="val_acc")
    expect(gap.locator(".ddl-outside text")).to_have_text("×")
    summary.press("Enter")
    expect(view.locator(".ddl-picker")).to_contain_text("276 more have no curve")
    view.get_by_label("Find a metric").fill("layer2")
    view.get_by_role("checkbox", name="layer20/norm").press("Space")
    expect(charts).to_have_count(5)
    view.get_by_role("checkbox", name="layer20/norm").press("Space")
    expect(charts).to_have_count(4)
    for width in (320, 760, 1100):
        view.set_viewport_size({"width": width, "height": 900})
        assert view.evaluate("document.documentElement.scrollWidth") <= width
        take(view, f"live-metrics-{width}")
        assert serious_findings(view, ".ddl-live") == []


def test_full_range_shows_what_lies_far_away_and_one_cursor_is_that_of_all_charts(
    view: Page,
) -> None:
    loss = [[step, 1e6 if step == 7 else 2 - step / 40] for step in range(40)]
    curves = {"loss": loss, "acc": [[step, step / 40] for step in range(40)]}
    drawn = msgspec.to_builtins(samples.group())
    drawn |= {"series": curves, "metrics": list(curves), "n_metrics": 2, "seq": 1}
    message = {"kind": "run", "seq": 1, "at_s": samples.NOW_S, "snapshot": drawn}
    view.evaluate("message => take(message)", message)
    charts = view.locator(".ddl-charts figure")
    expect(charts).to_have_count(2)
    outlier = charts.first.locator(".ddl-outside text")
    expect(outlier).to_have_text("▲")
    full = charts.first.get_by_role("button", name="full range")
    expect(full).to_have_attribute("title", "▲ 1 above the axis")
    expect(charts.last.get_by_role("button", name="full range")).to_be_hidden()
    full.click()
    expect(full).to_have_attribute("aria-pressed", "true")
    expect(outlier).to_have_count(0)
    expect(charts.first.locator(".ddl-labels")).to_contain_text("1,000,000")
    full.click()
    expect(outlier).to_have_text("▲")
    # The pointer in one chart, and the keyboard in the other, move the cursor of both.
    lines = view.locator(".ddl-charts .ddl-cursor")
    expect(lines.locator("visible=true")).to_have_count(0)
    box = charts.first.get_by_role("img").bounding_box()
    assert box is not None
    view.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    places = [each.get_attribute("x1") for each in lines.all()]
    assert None not in places
    readouts = charts.locator(".ddl-readout")
    first = readouts.first.inner_text().partition(" ·")[0]
    assert first.startswith("step ")
    expect(readouts.last).to_contain_text(first)
    view.mouse.move(2, 2)
    charts.last.get_by_role("img").focus()
    view.keyboard.press("Home")
    expect(readouts.first).to_contain_text("step 0")
    assert [each.get_attribute("x1") for each in lines.all()] != places
