"""A Jupyter server that can open no file says so, and goes on by itself when it can again."""

from __future__ import annotations

import contextlib
import json
import resource
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest

from tests.integration.server.jupyter_process import Browser, JupyterServer
from tests.integration.server.test_relay import LONG, running, write_search
from tests.run_tools import start_search
from tests.until import PATIENCE_S

pytestmark = pytest.mark.integration


@contextlib.contextmanager
def without_descriptors(server: JupyterServer) -> Iterator[None]:
    """As if it had opened all that it may: what is open stays open, and nothing more can be."""
    pid = server.process.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


def lists(browser: Browser, is_so: Callable[[dict[str, Any]], object]) -> dict[str, dict[str, Any]]:
    """The newest lists of runs and of clusters, once both are as wanted; in whichever order."""
    newest: dict[str, dict[str, Any]] = {}

    def look(message: dict[str, Any]) -> bool:
        newest[message["kind"]] = message
        return all(kind in newest and is_so(newest[kind]) for kind in ("runs", "clusters"))

    browser.wait(look, PATIENCE_S)
    return newest


def test_what_can_t_be_read_without_descriptors_is_told_and_comes_back(
    own_cluster: object, server: JupyterServer, browser: Browser
) -> None:
    run = start_search(LONG.replace("range(400)", "range(100_000)"), 4)
    lists(browser, lambda m: run.id in json.dumps(m))
    assert browser.ask("watch", PATIENCE_S, run_id=run.id)["kind"] == "done"
    before = browser.watch_run(run.id, lambda s: len(running(s)) == 2, PATIENCE_S)

    with without_descriptors(server):
        write_search("r1121-later", 3)
        told = lists(browser, lambda m: "files and sockets open at a time" in m["trouble"])
        assert [line["run_id"] for line in told["runs"]["runs"]] == [run.id]
        assert [each["name"] for each in told["clusters"]["clusters"]] == ["test"]
        # What is connected goes on; what would open a file is refused with the reason.
        browser.watch_run(run.id, lambda s: s["seq"] > before["seq"], PATIENCE_S)
        refused = browser.ask("get_columns", PATIENCE_S, run_id="r1121-later")
        assert (refused["kind"], refused["id"]) == ("denied", browser._id)
        assert "Too many open files" in refused["text"]

    again = lists(browser, lambda m: not m["trouble"])
    assert [each["name"] for each in again["clusters"]["clusters"]] == ["test"]
    assert {line["run_id"] for line in again["runs"]["runs"]} == {run.id, "r1121-later"}
    assert browser.ask("get_columns", PATIENCE_S, run_id="r1121-later")["n_trials"] == 3
    assert browser.ask("stop_run", PATIENCE_S, run_id=run.id, how="now")["kind"] == "done"
    browser.watch_run(run.id, lambda s: s["state"] == "cancelled", PATIENCE_S)
    assert psutil.Process(server.process.pid).is_running()
    assert "Traceback" not in server.log.read_text()
