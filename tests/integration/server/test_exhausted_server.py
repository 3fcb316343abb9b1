"""A Jupyter server that can open no file says so, and goes on by itself when it can again."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator
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


def test_what_can_t_be_read_without_descriptors_is_told_and_comes_back(
    own_cluster: object, server: JupyterServer, browser: Browser
) -> None:
    run = start_search(LONG, 4)
    browser.wait_kind("clusters", lambda m: m["clusters"], PATIENCE_S)
    browser.wait_kind("runs", lambda m: m["runs"] and m["runs"][0]["live"], PATIENCE_S)
    assert browser.ask("watch", run_id=run.id)["kind"] == "done"
    before = browser.watch_run(run.id, lambda s: len(running(s)) == 2, PATIENCE_S)

    with without_descriptors(server):
        write_search("r1121-later", 3)

        def tells(message: dict[str, Any]) -> bool:
            return "files and sockets open at a time" in message.get("trouble", "")

        told = {kind: browser.wait_kind(kind, tells, PATIENCE_S) for kind in ("runs", "clusters")}
        assert [line["run_id"] for line in told["runs"]["runs"]] == [run.id]
        assert [each["name"] for each in told["clusters"]["clusters"]] == ["test"]
        # What is connected goes on; what would open a file is refused with the reason.
        browser.watch_run(run.id, lambda s: s["seq"] > before["seq"], PATIENCE_S)
        refused = browser.ask("get_columns", PATIENCE_S, run_id="r1121-later")
        assert (refused["kind"], refused["id"]) == ("denied", browser._id)
        assert "Too many open files" in refused["text"]

    both = {run.id, "r1121-later"}
    browser.wait_kind(
        "runs", lambda m: {r["run_id"] for r in m["runs"]} == both and not m["trouble"], PATIENCE_S
    )
    browser.wait_kind("clusters", lambda m: m["clusters"] and not m["trouble"], PATIENCE_S)
    assert browser.ask("get_columns", PATIENCE_S, run_id="r1121-later")["n_trials"] == 3
    assert browser.ask("stop_run", PATIENCE_S, run_id=run.id, how="now")["kind"] == "done"
    browser.watch_run(run.id, lambda s: s["state"] == "cancelled", PATIENCE_S)
    assert psutil.Process(server.process.pid).is_running()
    assert "Traceback" not in server.log.read_text()
