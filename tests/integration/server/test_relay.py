"""A panel sees and steers what it did not start, whoever dies meanwhile."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from jupyter_ddl.client.clusters import start_cluster
from jupyter_ddl.ledger.writer import LedgerWriter
from jupyter_ddl.protocol.events import (
    AttemptFinished,
    Event,
    RunFinished,
    RunStarted,
    RunSubmitted,
    TrialCreated,
)
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.protocol.space import Uniform
from jupyter_ddl.store.connection import read_connection
from jupyter_ddl.store.paths import ledger_path, run_dir
from jupyter_ddl.verbs.search import Search
from tests.integration.server.jupyter_process import Browser, JupyterServer, serving
from tests.leaks import Home
from tests.run_tools import STEPS, assert_clean, controller_pid, kill_controller, start_search
from tests.until import PATIENCE_S, until

pytestmark = pytest.mark.integration

LONG = STEPS.replace("range(4)", "range(400)").replace(
    "for step", "print('trial begins')\nfor step"
)
"""A trial of 20 s that reports 20 times a second."""


def running(snapshot: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for row in snapshot["rows"] if row["state"] == "running"]


def test_a_run_of_another_process_is_listed_followed_and_stopped(
    own_cluster: object, browser: Browser
) -> None:
    run = start_search(LONG, 4)
    listed = browser.wait_kind(
        "runs", lambda m: [line for line in m["runs"] if line["live"] and line["run_id"] == run.id]
    )
    assert listed["runs"][0]["cluster"] == "test"
    assert browser.ask("watch", run_id=run.id)["kind"] == "done"
    first = browser.watch_run(run.id, lambda s: len(running(s)) == 2)
    later = browser.watch_run(run.id, lambda s: s["seq"] > first["seq"] + 10)
    assert running(later)[0]["step"] > 0

    log = browser.ask("get_log", run_id=run.id, trial=0)
    assert log["lines"] == ["trial begins"]
    told = browser.ask("get_columns", run_id=run.id)
    assert len(told["values"]["x"]) == told["n_trials"] >= 2

    stopped = running(later)[0]["number"]
    assert browser.ask("stop_trial", run_id=run.id, trial=stopped)["kind"] == "done"
    browser.watch_run(
        run.id,
        lambda s: [r for r in s["rows"] if r["number"] == stopped and r["state"] == "cancelled"],
        5.0,
    )
    assert browser.ask("stop_run", run_id=run.id)["kind"] == "done"
    assert browser.watch_run(run.id, lambda s: s["state"] == "cancelled", 5.0)["seq"] > 0
    assert run.wait(PATIENCE_S).state == "cancelled"
    browser.wait_kind("runs", lambda m: m["runs"][0]["state"] == "cancelled")
    refused = browser.ask("stop_trial", run_id=run.id, trial=0)
    assert (refused["kind"], refused["code"]) == ("denied", "DDL-5003")


def test_two_tabs_see_the_same_and_share_one_connection(
    own_cluster: object, server: JupyterServer
) -> None:
    run = start_search(LONG, 2)
    tabs = [server.connect() for _ in range(3)]
    for tab in tabs:
        assert tab.ask("watch", run_id=run.id)["kind"] == "done"
    for tab in tabs:
        tab.watch_run(run.id, lambda s: len(running(s)) == 2)
    path = read_connection("test").socket  # type: ignore[union-attr]

    def ends() -> list[object]:
        sockets = psutil.Process(controller_pid()).net_connections("unix")
        return [each for each in sockets if each.laddr == path]

    # One listens, one is the test's own, one is the server's. A process that was held up for a
    # while may be about to connect again.
    until(lambda: len(ends()) == 3, PATIENCE_S, "two connections to the controller")
    run.cancel("now")
    for tab in tabs:
        tab.watch_run(run.id, lambda s: s["state"] == "cancelled")
        tab.close()


def test_a_panel_sees_a_run_through_the_death_of_its_controller(
    own_cluster: object, browser: Browser
) -> None:
    run = start_search(STEPS.replace("range(4)", "range(40)"), 8)
    browser.ask("watch", run_id=run.id)
    browser.watch_run(run.id, lambda s: s["counts"]["complete"] >= 2)
    kill_controller()
    browser.wait_kind("clusters", lambda m: not m["clusters"])
    browser.wait_kind("runs", lambda m: not m["runs"][0]["live"])
    refused = browser.ask("stop_run", run_id=run.id)
    assert refused["kind"] == "denied"
    assert "cluster test is not running" in refused["text"]
    # What is known is still shown, from the record.
    assert browser.ask("get_columns", run_id=run.id)["n_trials"] >= 2

    started = browser.ask("start_cluster", name="test", n_workers=2, timeout_s=60.0)
    assert (started["kind"], run.id in started["text"]) == ("done", True)
    end = browser.watch_run(run.id, lambda s: s["state"] == "complete", 60.0)
    assert end["counts"]["complete"] == 8
    assert_clean(run, 8)


def test_a_panel_that_reconnects_to_a_new_server_finds_all_as_it_is(stopping: Home) -> None:
    """Also the cluster that the killed server has started."""
    with serving(stopping) as server:
        tab = server.connect()
        tab.ask("start_cluster", name="test", n_workers=2, timeout_s=60.0)
        run = start_search(LONG, 4)
        tab.ask("watch", run_id=run.id)
        before = tab.watch_run(run.id, lambda s: len(running(s)) == 2)
        server.kill()
    with serving(stopping) as server:
        tab = server.connect()
        tab.wait_kind("clusters", lambda m: [c for c in m["clusters"] if c["name"] == "test"])
        tab.wait_kind("runs", lambda m: m["runs"][0]["live"])
        tab.ask("watch", run_id=run.id)
        tab.watch_run(run.id, lambda s: s["seq"] > before["seq"])
        assert tab.ask("stop_run", run_id=run.id, how="now")["kind"] == "done"
        tab.watch_run(run.id, lambda s: s["state"] == "cancelled")
        tab.close()


def test_clusters_are_started_scaled_and_stopped_from_the_panel(
    browser: Browser, stopping: Home
) -> None:
    browser._id += 1
    number = browser._id
    browser.send("start_cluster", id=number, name="panel", n_workers=1)
    assert browser.wait_kind("progress", lambda m: m["id"] == number)["text"]
    assert browser.wait(lambda m: m.get("id") == number and m["kind"] == "done", 60.0)
    seen = browser.wait_kind("clusters", lambda m: m["clusters"])["clusters"][0]
    assert (seen["name"], seen["n_wanted"]) == ("panel", 1)
    assert browser.ask("watch_cluster", cluster="panel")["kind"] == "done"
    sample = browser.wait_kind("telemetry", lambda m: m["telemetry"]["workers"])
    assert (sample["cluster"], sample["run_id"]) == ("panel", "")
    again = browser.ask("start_cluster", name="panel", n_workers=1)
    assert (again["kind"], again["code"]) == ("denied", "DDL-3001")
    assert browser.ask("scale_cluster", cluster="panel", n_workers=2)["kind"] == "done"
    browser.wait_kind("clusters", lambda m: len(m["clusters"][0]["workers"]) == 2)
    assert browser.ask("scale_cluster", cluster="panel", n_workers=10**6)["code"] == "DDL-2001"
    log = browser.ask("get_cluster_log", cluster="panel", contains="READY")
    assert "ready; resumed runs: none" in log["lines"][-1]
    pid = controller_pid("panel")
    assert browser.ask("stop_cluster", cluster="panel")["kind"] == "done"
    browser.wait_kind("clusters", lambda m: not m["clusters"] and not m["unreachable"])
    until(lambda: read_connection("panel") is None, 10.0, "the end of the cluster")
    until(lambda: not psutil.pid_exists(pid), 10.0, "the server to bury its child")


def test_an_open_panel_keeps_no_idle_cluster_alive(browser: Browser, stopping: Home) -> None:
    fields = {"name": "short", "n_workers": 0, "idle_timeout_s": 6.0}
    assert browser.ask("start_cluster", timeout_s=60.0, **fields)["kind"] == "done"
    browser.ask("watch_cluster", cluster="short")
    browser.wait_kind("clusters", lambda m: m["clusters"])
    browser.wait_kind("clusters", lambda m: not m["clusters"], 20.0)


def test_a_controller_that_hangs_is_told_and_holds_up_nobody(
    browser: Browser, stopping: Home
) -> None:
    start_cluster(n_workers=0, name="one")
    start_cluster(n_workers=0, name="two")
    browser.wait_kind("clusters", lambda m: len(m["clusters"]) == 2)
    pid = controller_pid("one")
    os.kill(pid, signal.SIGSTOP)
    try:
        hangs = browser.wait_kind("clusters", lambda m: m["unreachable"] == ["one"])
        assert [each["name"] for each in hangs["clusters"]] == ["two"]
        assert browser.ask("get_cluster_log", cluster="two", timeout_s=10.0)["lines"]
    finally:
        os.kill(pid, signal.SIGCONT)
    browser.wait_kind("clusters", lambda m: len(m["clusters"]) == 2)


def test_a_search_of_ten_thousand_trials_comes_from_its_record(
    home: Home, browser: Browser
) -> None:
    write_search("r1121-large", 10_000)
    browser.wait_kind("runs", lambda m: m["runs"] and m["runs"][0]["n_finished"] == 10_000)
    browser.ask("watch", run_id="r1121-large")
    assert (
        browser.watch_run("r1121-large", lambda s: s["state"] == "complete")["n_trials"] == 10_000
    )
    told = browser.ask("get_columns", run_id="r1121-large")
    assert told["values"]["value"] == [float(n) for n in range(10_000)]


def write_search(run_id: str, n_trials: int) -> Path:
    verb = Search("acc", "max", n_trials, {"lr": Uniform(0.0, 1.0)})
    spec = RunSpec(run_id, verb, Program("x = 1", "In [3]"), 7, "gone", 1000.0)
    events: list[Event] = [RunSubmitted(spec, 1000.0), RunStarted(1001.0, 1, 2, 2, 42)]
    for number in range(n_trials):
        events.append(TrialCreated(number, {"lr": number / n_trials}, 1002.0))
        end = AttemptFinished(number, 1, "complete", 1003.0 + number, 1.0, float(number))
        events.append(end)
    totals = {"complete": n_trials}
    events.append(RunFinished(99_000.0, "complete", totals=totals, best_trial=n_trials - 1))
    run_dir(run_id).mkdir(parents=True)
    with LedgerWriter.open(ledger_path(run_id), create=True) as ledger:
        ledger.append(events)
    return ledger_path(run_id)
