"""The page with the live view of a search of 10,000 trials that goes on all the time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from bench.browser import lab_in_browser
from bench.harness import Goal, Line, Probe, Row, is_quick, tell
from bench.rows.flood import QUANTILE, WATCH
from jupyter_ddl.ledger.reducer import RunState, fold, fold_all
from jupyter_ddl.ledger.snapshots import snapshot_of
from jupyter_ddl.protocol.events import (
    AttemptFinished,
    AttemptStarted,
    Event,
    Reported,
    RunStarted,
    RunSubmitted,
    TrialCreated,
)
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.protocol.space import Uniform
from jupyter_ddl.verbs.search import Search

if TYPE_CHECKING:
    from playwright.sync_api import Page

_PROBE = Probe("bench.rows.live_page")
_N_TRIALS = 10_000
_N_STEPS = 5
_PER_S = 4
"""What a channel sends of a state that changes all the time."""

ROW = Row(
    name="live_page",
    title="Page of a search of 10,000 trials, four new states a second",
    better="lower",
    repeats=3,
    warmups=0,
    note=(
        "The panel's page of a run in headless Chromium, which is the module that cells show. Its "
        "websocket brings snapshots and columns of trials made by the package itself. Blocked: how "
        "late a timer of 10 ms comes on the page's main thread."
    ),
    lines=(
        Line("page blocked, 99th percentile", _PROBE, "blocked_p99_ms", "ms", Goal(100, "lower")),
        Line("… an empty page beside it", _PROBE, "empty_p99_ms", "ms"),
        Line("largest snapshot", _PROBE, "snapshot_kb", "kB", Goal(64, "lower")),
    ),
)


def main() -> None:
    with lab_in_browser() as (lab, browser):
        page = browser.new_page(viewport={"width": 1100, "height": 800})
        empty = browser.new_context().new_page()
        tell(_measure(page, empty, f"{lab.address}/lab?token={lab.token}&reset"))


def _measure(page: Page, empty: Page, address: str) -> dict[str, float]:
    import msgspec

    from jupyter_ddl.protocol import view_messages as say
    from jupyter_ddl.views.channel import Columns
    from jupyter_ddl.views.columns import columns_part
    from tests.browser.panel_script import ScriptedServer, cluster, run_line

    spec = RunSpec(
        "r1",
        Search("acc", "max", 2 * _N_TRIALS, {"lr": Uniform(0.0, 1.0), "drop": Uniform(0.0, 1.0)}),
        Program("x = 1", "In [3]"),
        7,
        "train",
        time.time() - 600,
        name="many trials",
    )
    state = fold_all([RunSubmitted(spec, time.time()), RunStarted(time.time(), 1, 8, 8, 4242)])
    for number in range(_N_TRIALS):
        _advance(state, _trial(number))

    def view() -> say.RunView:
        return say.RunView(0, time.time(), snapshot_of(state, time.time()))

    busy = cluster("train", 8, n_busy=8, active=("r1",))
    line = run_line("r1", "many trials", "running", n_trials=2 * _N_TRIALS, n_finished=_N_TRIALS)
    lists: list[Any] = [say.ClusterList(0, 0.0, (busy,)), say.RunList(0, 0.0, (line,))]
    server = ScriptedServer(page, lambda: [*lists, view()])
    server.answers["get_columns"] = lambda body: Columns(
        *columns_part(state, msgspec.convert(body, say.GetColumns))
    )
    page.goto(address)
    page.wait_for_function("() => window.jupyterapp?.restored")
    page.evaluate("() => window.jupyterapp.restored")
    page.evaluate("() => { void window.jupyterapp.commands.execute('jupyter-ddl:show-panel'); }")
    page.locator("button.jp-ddl-run").first.click()
    page.wait_for_selector(".ddl-live[data-run]")
    for each in (page, empty):
        each.evaluate(WATCH)
    largest = 0
    for number in range(_N_TRIALS, _N_TRIALS + _PER_S * (4 if is_quick() else 10)):
        _advance(state, _trial(number))
        message = view()
        largest = max(largest, len(msgspec.json.encode(message.snapshot)))
        server.say(message)
        page.wait_for_timeout(1000 / _PER_S)
    return {
        "blocked_p99_ms": page.evaluate(QUANTILE, 0.99),
        "empty_p99_ms": empty.evaluate(QUANTILE, 0.99),
        "snapshot_kb": largest / 1e3,
    }


def _advance(state: RunState, events: Iterator[Event]) -> None:
    for event in events:
        fold(state, event)


def _trial(number: int) -> Iterator[Event]:
    now_s = time.time()
    value = number * 37 % 1009 / 1009
    yield TrialCreated(number, {"lr": value, "drop": number % 97 / 97}, now_s)
    yield AttemptStarted(number, 1, now_s, f"w{number % 8}", 9, "0.log", number)
    for step in range(_N_STEPS):
        yield Reported(number, 1, step, {"acc": value * (step + 1) / _N_STEPS}, now_s)
    yield AttemptFinished(number, 1, "complete", now_s, 0.01, value, number + 99)


if __name__ == "__main__":
    main()
