"""The live view of searches of many trials: the first picture, and scrolling while it goes on."""

from __future__ import annotations

import itertools
import math
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

from bench.browser import scrolling, tasks_traced
from bench.harness import ROOT, Goal, Line, Probe, Row, is_quick, tell
from jupyter_ddl.ledger.reducer import RunState, fold, fold_all
from jupyter_ddl.ledger.snapshots import snapshot_of
from jupyter_ddl.ledger.writer import LedgerWriter
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
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.protocol.space import ParamValue, Uniform
from jupyter_ddl.protocol.view_messages import GetColumns
from jupyter_ddl.server.first_view import columns_kept, keep_first_view, snapshot_kept
from jupyter_ddl.server.run_list import Folds
from jupyter_ddl.store.paths import ledger_path, private_dir, run_dir
from jupyter_ddl.verbs.search import Search
from jupyter_ddl.views.bundle import LIVE_DIR, live_css
from jupyter_ddl.views.channel import Columns
from jupyter_ddl.views.columns import columns_part

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

_PROBE = Probe("bench.rows.many_trials")
_N_OVER, _N_LIVE = 100_000, 5_000
_TASK_MS = 1.0
_PER_S = 4
"""What a channel sends of a state that changes all the time."""
_MOUNT = """async () => {
  const { mount } = await import("http://view.test/index.js");
  const { framed } = await import("http://view.test/columns.js");
  window.nBytes = 0;
  const subscribe = (take) => { window.take = take; return () => {}; };
  const send = async (ask) => {
    if (ask.kind !== "get_columns") return;
    const query = `id=${ask.id}&since=${ask.since}&part=${ask.part}`;
    const bytes = await (await fetch(`http://view.test/columns?${query}`)).arrayBuffer();
    window.firstAt ??= performance.now();
    window.nBytes ||= bytes.byteLength;
    take(framed(bytes));
  };
  mount(document.body, { send, subscribe }, {});
}"""
_FIRST = """() => {
  const canvas = document.querySelector(".ddl-wide canvas");
  if (canvas === null || canvas.hidden || canvas.width < 60) return null;
  const { data } = canvas.getContext("2d").getImageData(canvas.width - 60, 0, 30, canvas.height);
  return data.some((each) => each > 0) ? performance.now() - window.firstAt : null;
}"""
_SCROLL = scrolling(".ddl-rows", 2000)

ROW = Row(
    name="many_trials",
    title="Live view of 100,000 trials that are over, and of 5,000 that go on",
    better="lower",
    repeats=3,
    warmups=0,
    note=(
        "The modules of the live view in headless Chromium, drawn by the CPU; snapshots and "
        "columns are made by the package itself, five parameters a trial. First picture: from the "
        "bytes' arrival until history, parallel coordinates and table are painted. Live: four "
        "snapshots and four trials a second while the table is scrolled up and down. Tasks are "
        "those of the page's main thread that take 1 ms or more: hundreds of shorter ones a second "
        "would hide them."
    ),
    lines=(
        Line("100,000 trials, first picture", _PROBE, "first_s", "s", Goal(1.0, "lower")),
        Line("… bytes before it", _PROBE, "first_mb", "MB", Goal(2.0, "lower")),
        Line("… made by the server in", _PROBE, "made_s", "s"),
        Line("… read by a server that has begun anew in", _PROBE, "kept_s", "s"),
        Line("… where nothing was kept, record folded in", _PROBE, "folded_s", "s"),
        Line("5,000 trials, frames while scrolling", _PROBE, "frames_per_s", "1/s"),
        Line("… 99th percentile of the gaps", _PROBE, "gap_p99_ms", "ms"),
        Line("… 99th percentile of tasks", _PROBE, "task_p99_ms", "ms", Goal(50.0, "lower")),
        Line("… longest task", _PROBE, "task_ms", "ms"),
    ),
)


def main() -> None:
    sys.path.insert(0, str(ROOT))
    from tests.browser.chromium import headless_chromium

    with headless_chromium() as browser:
        n_over = _N_OVER // (10 if is_quick() else 1)
        figures = _opened(n_over)
        over = _state(n_over, is_over=True)
        figures |= _first_picture(browser.new_page(viewport={"width": 1100, "height": 900}), over)
        live = _state(_N_LIVE, is_over=False)
        figures |= _scrolled(browser.new_page(viewport={"width": 1100, "height": 900}), live)
    tell(figures)


def _first_picture(page: Page, state: RunState) -> dict[str, float]:
    made = _mount(page, state)
    _show(page, state)
    page.wait_for_function(_FIRST, polling=20)
    took_ms = page.evaluate(_FIRST)
    return {
        "first_s": took_ms / 1e3,
        "first_mb": page.evaluate("window.nBytes") / 1e6,
        "made_s": made[0],
    }


def _scrolled(page: Page, state: RunState) -> dict[str, float]:
    _mount(page, state)
    _show(page, state)
    page.wait_for_function(_FIRST, polling=20)
    page.wait_for_timeout(1000)
    seconds = 3 if is_quick() else 10
    rng = random.Random(9)
    with tasks_traced(page) as took_ms:
        page.evaluate(f"() => {{ window.gaps = ({_SCROLL})({seconds}); }}")
        began = time.perf_counter()
        number = len(state.trials)
        while time.perf_counter() - began < seconds:
            for event in _trial(number, rng):
                fold(state, event)
            number += 1
            _show(page, state)
            page.wait_for_timeout(1000 / _PER_S)
        gaps_ms: list[float] = page.evaluate("() => window.gaps")
    tasks_ms = [each for each in took_ms if each >= _TASK_MS]
    return {
        "frames_per_s": 1000 * len(gaps_ms) / sum(gaps_ms),
        "gap_p99_ms": statistics.quantiles(gaps_ms, n=100)[98],
        "task_p99_ms": statistics.quantiles(tasks_ms, n=100)[98],
        "task_ms": max(tasks_ms),
    }


def _mount(page: Page, state: RunState) -> list[float]:
    """An empty view; how long each answer took to make is in the list."""
    took: list[float] = []

    def serve(route: Route) -> None:
        name = route.request.url.rpartition("/")[2]
        styles = f"<!doctype html><meta charset=utf-8><style>{live_css()}</style><body>"
        body = (LIVE_DIR / name).read_text() if name else styles
        route.fulfill(body=body, content_type="text/javascript" if name else "text/html")

    def columns(route: Route) -> None:
        ask = dict(parse_qsl(urlsplit(route.request.url).query))
        began = time.perf_counter()
        wanted = GetColumns(int(ask["id"]), "r1", int(ask["since"]), int(ask["part"]))
        frame = Columns(*columns_part(state, wanted)).frame()
        took.append(time.perf_counter() - began)
        route.fulfill(body=frame, content_type="application/octet-stream")

    page.route("http://view.test/**", serve)
    page.route("http://view.test/columns?*", columns)
    page.goto("http://view.test/")
    page.evaluate(_MOUNT)
    return took


def _show(page: Page, state: RunState) -> None:
    import msgspec

    snapshot = msgspec.to_builtins(snapshot_of(state, time.time()))
    page.evaluate(
        "m => take(m)", {"kind": "run", "seq": 1, "at_s": time.time(), "snapshot": snapshot}
    )


def _state(n_trials: int, *, is_over: bool) -> RunState:
    return fold_all(_events(n_trials, is_over=is_over))


def _events(n_trials: int, *, is_over: bool) -> Iterator[Event]:
    spec = RunSpec(
        "r1",
        Search("acc", "max", 2 * n_trials, {"lr": Uniform(0.0, 1.0)}),
        Program("x = 1", "In [3]"),
        7,
        "train",
        time.time() - 600,
        name="many trials",
    )
    yield RunSubmitted(spec, time.time())
    yield RunStarted(time.time(), 1, 8, 8, 4242)
    rng = random.Random(1)
    for number in range(n_trials):
        yield from _trial(number, rng)
    if is_over:
        yield RunFinished(time.time(), "complete")


def _opened(n_trials: int) -> dict[str, float]:
    """How soon a server that has begun anew has what the first picture is made of."""
    with tempfile.TemporaryDirectory() as home:
        os.environ["JUPYTER_DDL_HOME"] = home
        private_dir(run_dir("r1"))
        with LedgerWriter.open(ledger_path("r1"), create=True) as ledger:
            events = _events(n_trials, is_over=True)
            while batch := list(itertools.islice(events, 10_000)):
                ledger.append(batch)
        folds = Folds()
        began = time.perf_counter()
        folds.poll("r1", lambda state: snapshot_of(state, time.time()))
        folded_s = time.perf_counter() - began
        keep_first_view(folds, "r1")
        began = time.perf_counter()
        snapshot, columns = snapshot_kept("r1"), columns_kept(GetColumns(1, "r1"))
        assert snapshot is not None
        assert columns is not None
        columns.frame()
        return {"folded_s": folded_s, "kept_s": time.perf_counter() - began}


def _trial(number: int, rng: random.Random) -> Iterator[Event]:
    now_s = time.time()
    lr, drop = 10 ** rng.uniform(-4, -1), rng.random()
    value = 1 - 0.3 * abs(2 + math.log10(lr)) - 0.2 * drop + rng.gauss(0, 0.03)
    params: dict[str, ParamValue] = {
        "lr": lr,
        "drop": drop,
        "width": rng.choice([64, 128, 256]),
        "act": rng.choice(["relu", "gelu"]),
        "norm": rng.random() < 0.5,
    }
    yield TrialCreated(number, params, now_s)
    yield AttemptStarted(number, 1, now_s, f"w{number % 8}", 9, "0.log", number)
    yield Reported(number, 1, 0, {"acc": value, "loss": 1 - value}, now_s)
    yield AttemptFinished(number, 1, "complete", now_s, rng.random(), value, number + 99)


if __name__ == "__main__":
    main()
