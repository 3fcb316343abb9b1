"""What a run costs, in the words of text, HTML and live view, and in lists."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from jupyter_ddl.protocol.snapshot import RunLine, RunSnapshot, SpendingRow
from jupyter_ddl.protocol.telemetry import Usage
from jupyter_ddl.protocol.verb import load_verb
from jupyter_ddl.views.bundle import LIVE_DIR
from jupyter_ddl.views.html import render_html
from jupyter_ddl.views.summary import costs, is_final
from jupyter_ddl.views.tables import render_runs
from jupyter_ddl.views.text import render_text
from tests.unit.views import view_samples as samples
from tests.unit.views.node_tools import node

MID = samples.search()
NOW_S = samples.NOW_S
MONEY = SpendingRow("money", "EUR", 1.8, NOW_S - 36.0, 4.0)
HOURS = SpendingRow("cpuh", "", 1.0, NOW_S - 36.0, 8.0, 20.0)


def with_rows(*rows: SpendingRow, **changes: object) -> RunSnapshot:
    return replace(MID, spending=rows, **changes)


CASES = [
    (with_rows(MONEY), "€ 1.84 so far, about € 0.19 to go"),
    (with_rows(MONEY, ends_at_s=None), "€ 1.84 so far"),
    (with_rows(replace(MONEY, budget=20.0)), "€ 1.84 so far of € 20.00, about € 0.19 to go"),
    (with_rows(replace(MONEY, per_hour=0.0)), "€ 1.80 so far"),
    (with_rows(replace(MONEY, budget=2.0), state="cancelled"), "€ 1.80 of € 2.00"),
    (with_rows(HOURS), "1.08 CPU-hours so far of 20 CPU-hours"),
    (with_rows(replace(HOURS, unit="gpuh"), state="failed"), "1 GPU-hours of 20 GPU-hours"),
]


@pytest.mark.parametrize(("snapshot", "text"), CASES)
def test_every_view_says_what_it_has_cost_and_will(snapshot: RunSnapshot, text: str) -> None:
    assert costs(snapshot, NOW_S) == (text,)
    assert text in " ".join(render_text(snapshot, NOW_S, 400).split())
    assert text in render_html(snapshot, now_s=NOW_S, live=True)


def test_the_live_view_says_the_same() -> None:
    calls = [
        [msgspec.to_builtins(each), msgspec.to_builtins(each.spending[0]), NOW_S, is_final(each)]
        for each, _ in CASES
    ]
    driver = Path(__file__).with_name("live_costs.mjs")
    done = subprocess.run(
        [node(), str(driver), str(LIVE_DIR / "costs.js")],
        input=json.dumps(calls),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert json.loads(done.stdout) == [text for _, text in CASES]


def test_a_run_without_prices_says_nothing() -> None:
    assert costs(MID, NOW_S) == ()
    assert "€" not in render_text(MID, NOW_S)


def test_a_currency_that_is_none_does_no_harm() -> None:
    snapshot = with_rows(replace(MONEY, currency="<b>\x1b"))
    assert "<b>" not in render_html(snapshot, now_s=NOW_S, live=True)
    assert "\x1b" not in render_text(snapshot, NOW_S)


def test_the_list_has_a_column_of_costs_where_a_run_has_some() -> None:
    verb = load_verb("search")
    line = RunLine("r1", "", "search", verb.can, verb.nouns, "local", "complete", 0.0, 5.0)
    priced = replace(line, run_id="r2", cost=1.234, currency="EUR")
    shown = repr(render_runs([line, priced], now_s=9.0))
    assert "cost" in shown
    assert "€ 1.23" in shown
    assert "cost" not in repr(render_runs([line], now_s=9.0))


def test_a_run_that_is_over_tells_what_it_has_cost_in_full() -> None:
    from jupyter_ddl.views.details import _held

    ended = with_rows(MONEY, state="complete", usage=Usage(0.5, 0.0))
    assert ("spent", "€ 1.80") in _held(ended)
