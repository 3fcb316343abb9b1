"""A search of thousands of trials in the live view: all are drawn, chosen among and listed."""

from __future__ import annotations

import base64
import random
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from playwright.sync_api import Locator, Page, expect

from jupyter_ddl.ledger.reducer import fold, fold_all
from jupyter_ddl.ledger.run_state import RunState
from jupyter_ddl.ledger.snapshots import snapshot_of
from jupyter_ddl.protocol.events import (
    AttemptFinished,
    AttemptStarted,
    Event,
    Reported,
    RunFinished,
    RunStarted,
    RunSubmitted,
    TrialCreated,
)
from jupyter_ddl.protocol.view_messages import GetColumns
from jupyter_ddl.views.channel import Columns
from jupyter_ddl.views.columns import columns_part
from tests.browser.lab_tools import serious_findings, take
from tests.browser.test_live_table import view  # noqa: F401  (a fixture)
from tests.unit.ledger.event_makers import search_spec

N_TRIALS = 3000
_ANSWER = """([id, frame]) => import("http://view.test/columns.js").then(({ framed }) =>
  take({ ...framed(Uint8Array.from(atob(frame), (c) => c.charCodeAt(0))), id }))"""


def events(rng: random.Random) -> Iterator[Event]:
    yield RunSubmitted(search_spec(), 1.0)
    yield RunStarted(2.0, 1, 8, 8, 42)
    for number in range(N_TRIALS):
        params: dict[str, Any] = {"lr": 10 ** rng.uniform(-4, -1), "drop": rng.random()}
        params |= {"act": rng.choice(["relu", "gelu", "silu"])}
        params |= {f"extra{n}": rng.random() for n in range(20)}
        yield TrialCreated(number, params, 3.0)
        yield AttemptStarted(number, 1, 3.0, f"w{number % 4}", 9, "0.log", number)
        yield Reported(number, 1, 0, {"acc": params["drop"]}, 4.0)
        yield AttemptFinished(number, 1, "complete", 5.0, 1.0, params["drop"], 9)
    yield RunFinished(9.0, "complete")


@pytest.fixture(scope="module")
def state() -> RunState:
    found = iter(events(random.Random(3)))
    run = fold_all([next(found)])
    for event in found:
        fold(run, event)
    return run


def answer(page: Page, state: RunState) -> None:
    """Give the page the columns that it asks for, until it has all of them."""
    done: set[int] = set()
    while True:
        page.wait_for_function(
            "n => sent.filter((m) => m.kind === 'get_columns').length > n", arg=len(done)
        )
        (ask, *_) = [
            m
            for m in page.evaluate("sent.filter((m) => m.kind === 'get_columns')")
            if m["id"] not in done
        ] or [None]
        if ask is None:
            continue
        done.add(ask["id"])
        told, data = columns_part(state, GetColumns(1, "r", ask["since"], ask["part"]))
        page.evaluate(_ANSWER, [ask["id"], base64.b64encode(Columns(told, data).frame()).decode()])
        if told.part + 1 == told.n_parts:
            return


def painted(canvas: Locator) -> int:
    """Pixels of a canvas that are not empty."""
    n: int = canvas.evaluate(
        """(canvas) => canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height)
        .data.filter((each, i) => i % 4 === 3 && each > 0).length"""
    )
    return n


def test_of_thousands_of_trials_all_are_drawn_brushed_and_listed(
    view: Page,  # noqa: F811
    state: RunState,
) -> None:
    snapshot = msgspec.to_builtins(snapshot_of(state, 10.0))
    view.evaluate("m => take(m)", {"kind": "run", "seq": 1, "at_s": 10.0, "snapshot": snapshot})
    answer(view, state)
    rows = view.get_by_label("Trials", exact=True)
    table = rows.locator("table")
    expect(table).to_have_attribute("aria-rowcount", str(N_TRIALS + 1))
    # Few of them are in the page, and the last one is a key away.
    assert 12 < rows.locator("tbody tr").count() < 40
    expect(rows.locator("[aria-rowindex='2']")).to_contain_text("★")
    rows.focus()
    rows.press("End")
    last = rows.locator(f"[aria-rowindex='{N_TRIALS + 1}']")
    expect(last).to_be_visible()
    worst = min(state.trials.values(), key=lambda trial: trial.value or 0.0)
    expect(last.locator("td").first).to_have_text(str(worst.number))
    # Where all rows in sight are others now, their lines are written anew, and none is moved.
    rows.evaluate(
        """(region) => {
          window.moved = 0;
          const count = (found) => { window.moved += found.length; };
          new MutationObserver(count).observe(region.querySelector("tbody"), { childList: true });
          region.scrollTop = region.scrollHeight / 2;
        }"""
    )
    expect(rows.locator(f"[aria-rowindex='{N_TRIALS // 2}']")).to_be_attached()
    assert view.evaluate("() => window.moved") == 0
    figure = view.locator(".ddl-wide")
    expect(figure.locator(".ddl-readout")).to_have_text(f"{N_TRIALS:,} trials")
    canvases = view.locator("canvas:visible")
    expect(canvases).to_have_count(2)
    expect(figure.locator(".ddl-strand")).to_have_count(1)  # the best; all others are painted
    view.wait_for_function(
        """() => [...document.querySelectorAll(".ddl-wide canvas")].every((canvas) => {
          const pen = canvas.getContext("2d");
          const { data } = pen.getImageData(canvas.width - 60, 0, 30, canvas.height);
          return data.some((each) => each > 0);
        })"""
    )
    before = painted(figure.locator("canvas"))
    assert before > 5000
    # The keyboard brushes an axis: a choice first, then the best tenth of the other one.
    axis = figure.get_by_role("button", name="Axis act")
    axis.focus()
    axis.press("ArrowUp")
    acts = [trial.params["act"] for trial in state.trials.values()]
    chosen = acts.count("gelu")
    expect(figure.locator(".ddl-readout")).to_have_text(f"{chosen:,} of {N_TRIALS:,} trials")
    expect(table).to_have_attribute("aria-rowcount", str(chosen + 1))
    tools = view.locator(".ddl-tools", has=view.get_by_label("Filter trials by state"))
    expect(tools).to_contain_text(f"{chosen:,} of {N_TRIALS:,}")
    view.get_by_label("Filter trials by state").fill("drop<0.5")
    both = sum(t.params["act"] == "gelu" and t.params["drop"] < 0.5 for t in state.trials.values())
    expect(table).to_have_attribute("aria-rowcount", str(both + 1))
    view.get_by_label("Filter trials by state").fill("")
    axis.press("Escape")
    expect(table).to_have_attribute("aria-rowcount", str(N_TRIALS + 1))
    # Axes change places, and those that have none are a choice away.
    names = figure.locator(".ddl-axis-name tspan")
    order = names.all_inner_texts()
    axis.press("ArrowLeft")
    assert names.all_inner_texts()[:3] == [order[0], order[2], order[1]]
    expect(axis).to_be_focused()
    more = figure.get_by_label("Show another parameter")
    more.select_option("extra19")
    expect(names.first).to_have_text("extra19")
    # And the mouse: a drag along an axis brushes it, a click takes the brush away.
    box = figure.get_by_role("button", name="Axis acc").locator("line").bounding_box()
    assert box is not None
    view.mouse.move(box["x"], box["y"] + 2)
    view.mouse.down()
    view.mouse.move(box["x"], box["y"] + box["height"] / 2, steps=3)
    view.mouse.up()
    expect(figure.locator(".ddl-readout")).not_to_have_text(f"{N_TRIALS:,} trials")
    expect(figure.locator(".ddl-brush:visible")).to_have_count(1)
    take(view, "live-many-trials")
    figure.get_by_role("button", name="clear").click()
    expect(figure.locator(".ddl-readout")).to_have_text(f"{N_TRIALS:,} trials")
    for width in (320, 760, 1100):
        view.set_viewport_size({"width": width, "height": 900})
        assert view.evaluate("document.documentElement.scrollWidth") <= width
        take(view, f"live-many-trials-{width}")
        assert serious_findings(view, ".ddl-live") == []
