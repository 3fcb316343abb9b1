"""Curves of several runs in one chart, without Lab: the real module, answered by this test."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from jupyter_ddl.views.bundle import LIVE_DIR, live_css
from tests.browser.lab_tools import serious_findings, take

_MOUNT = """async (names) => {
  const { mountCompared } = await import("http://view.test/compare.js");
  const runs = names.map((name, i) => ({ id: `r${i}`, name: () => name }));
  window.compared = mountCompared(document.body, (message) => answered(message), runs);
}"""
_DARK = "@media (prefers-color-scheme: dark) { body { background: #111; } }"
_HOURS = 3

Answers = dict[str, dict[str, Any]]
Show = Callable[[dict[str, Answers]], None]


@pytest.fixture
def show(page: Page) -> Iterator[Show]:
    """Mounts the curves of runs, by their names: of each metric and axis the points."""
    runs: list[Answers] = []

    def answered(ask: dict[str, Any]) -> dict[str, Any]:
        assert ask["is_best"]
        run = runs[int(ask["run_id"][1:])]
        if not run:
            return {"kind": "denied", "code": "DDL-5003", "text": "there is no run r-gone"}
        metric = ask["metric"] or next(iter(run))
        points = run.get(metric, {}).get(ask["axis"])
        curve = {"trial": 0, "state": "complete", "metric": metric, "points": points}
        part = {"kind": "curves", "run_id": ask["run_id"], "metric": metric, "metrics": list(run)}
        restarts = [{"round": 1, "rank": 0, "cause": "died", "step": 120, "is_over": True}]
        restarts = restarts if ask["run_id"] == "r0" else []
        curves = [curve] if points else []
        return {**part, "note": "", "curves": curves, "restarts": restarts}

    def serve(route: Route) -> None:
        name = route.request.url.rpartition("/")[2]
        head = "<!doctype html><html lang=en><meta charset=utf-8><title>t</title>"
        html = f"{head}<style>{live_css()}{_DARK}</style>"
        text = (LIVE_DIR / name).read_text() if name else html
        route.fulfill(body=text, content_type="text/javascript" if name else "text/html")

    def mount(named: dict[str, Answers]) -> None:
        runs[:] = named.values()
        page.evaluate(_MOUNT, list(named))

    trouble: list[str] = []
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.expose_function("answered", answered)
    page.route("http://view.test/**", serve)
    page.goto("http://view.test/")
    yield mount
    assert trouble == []


def _reported(scale: float, until_s: float) -> dict[str, Any]:
    values = [scale * (1 + (-1) ** step * 0.5) for step in range(40)]
    return {
        "step": [[10 * step, value] for step, value in enumerate(values)],
        "time": [[until_s * step / 39, value] for step, value in enumerate(values)],
    }


def test_runs_with_other_first_metrics_share_the_one_that_they_have(page: Page, show: Show) -> None:
    slow = {"val_acc": _reported(1.0, 9.0), "loss": _reported(2.0, 9.0)}
    fast = {"loss": _reported(4.0, 3600.0 * _HOURS), "lr": _reported(0.1, 3600.0 * _HOURS)}
    show({"slow <b>": slow, "fast": fast, "away": {}})
    chart = page.get_by_role("img", name="loss")
    expect(chart).to_be_visible()
    legend = page.locator(".ddl-legend > span")
    expect(legend).to_have_count(2)
    expect(legend.first).to_contain_text("slow <b>")
    rule = page.locator(".ddl-rules line title")
    expect(rule).to_have_text("slow <b>: round 2 went on from step 120")
    page.get_by_label("What curves go over").select_option("time")
    expect(rule).to_have_count(0)
    page.get_by_label("What curves go over").select_option("step")
    expect(rule).to_have_count(1)
    note = page.get_by_role("status")
    expect(note).to_have_text("away: There is no run r-gone.")
    # Over time, in the unit that the longest one asks for.
    page.get_by_label("What curves go over").select_option("time")
    expect(chart).to_contain_text("hours")
    expect(chart).to_have_attribute("aria-label", re.compile(r"^loss: hours 3 · .*fast 2"))
    page.get_by_label("What curves go over").select_option("step")
    expect(chart).to_contain_text("step")
    # Smoothed, with the values behind; a part is enlarged by the keyboard, and left again.
    lines = chart.locator("path.ddl-line")
    expect(lines).to_have_count(2)
    page.get_by_label("Smoothing of curves").select_option("0.9")
    expect(lines).to_have_count(4)
    expect(chart.locator("path.ddl-line.ddl-faint")).to_have_count(2)
    chart.focus()
    for key in ("Home", "Shift+ArrowRight", "Shift+ArrowRight", "Enter"):
        page.keyboard.press(key)
    whole = page.get_by_role("button", name="whole axis")
    expect(whole).to_be_visible()
    expect(chart).to_have_attribute("aria-label", re.compile("^loss: step 20 "))
    take(page, "compared-curves")
    whole.press("Enter")
    expect(chart).to_have_attribute("aria-label", re.compile("^loss: step 390 "))
    expect(whole).to_be_hidden()
    # A metric that one of them has.
    page.get_by_label("Metric").select_option("lr")
    expect(page.get_by_role("img", name="lr")).to_be_visible()
    expect(note).to_contain_text("slow <b> has not reported lr.")
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert serious_findings(page, ".ddl-compared") == []
    page.set_viewport_size({"width": 320, "height": 600})
    expect(page.locator(".ddl-compared")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 320


def test_runs_that_have_reported_nothing_are_a_sentence(page: Page, show: Show) -> None:
    show({"away": {}, "gone": {}})
    expect(page.get_by_role("status")).to_have_text("None of these runs has reported anything.")
    expect(page.get_by_role("img")).to_have_count(0)
    page.evaluate("compared.destroy()")
    expect(page.get_by_role("group")).to_have_count(0)
