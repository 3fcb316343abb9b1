"""A cluster that another home has started, and its runs, used from this one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jupyter_ddl.cli.main import main
from jupyter_ddl.client.api import search
from jupyter_ddl.client.clusters import Cluster, list_clusters, start_cluster
from jupyter_ddl.client.history import list_runs, remove_run
from jupyter_ddl.client.run import Run
from jupyter_ddl.client.session import session
from tests.integration.mirror.next_door import Door, opened_door
from tests.integration.server.jupyter_process import serving
from tests.leaks import Home, end_processes, new_home
from tests.run_tools import STEPS, assert_clean, start_search
from tests.until import until

pytestmark = pytest.mark.integration

_NAME = "there"
_CELL = """
import time
from jupyter_ddl import report, uniform
x = uniform(0.0, 1.0)
print('by', x)
blob = bytes(70 << 20)
for step in range(20):
    time.sleep(0.05)
    report(step=step, score=x)
"""


@pytest.fixture
def door(home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[Door]:
    with opened_door(monkeypatch) as found:
        try:
            yield found
        finally:
            for each in list_clusters():
                each.stop()


@contextmanager
def _another_home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    """As on another host: nothing of what this process has known is known there."""
    session().close()  # there is one loop for all sessions of a process
    with new_home() as other, monkeypatch.context() as there:
        for name, value in other.variables().items():
            there.setenv(name, value)
        there.setattr("jupyter_ddl.client.session._session", None)
        there.setattr("jupyter_ddl.client.elsewhere._joining", {})
        try:
            try:
                yield other
            finally:
                session().close()
        finally:
            end_processes(other)


def test_a_run_is_found_watched_and_removed_from_another_home(
    door: Door, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    start_cluster("nextdoor", 1, name=_NAME)
    run = search(_CELL, namespace={}, metric="score", trials=4, bring=("blob",), wait=False)
    run_id = run.id
    with _another_home(monkeypatch) as other:
        assert main(["runs", "show", run_id]) == 0
        assert f"cluster {_NAME} in the house next door" in capsys.readouterr().out
        found = Run(run_id)
        assert found.directory.is_relative_to(other.data)
        assert found.wait(120).state == "complete"
        assert_clean(found)
        assert found.logs(0).startswith("by 0.")
        assert not list(found.directory.glob("values/*")), "large ones come when asked for"
        assert found.value("blob") == bytes(70 << 20)
        (shown,) = list_runs()
        assert shown.run_id == run_id
        remove_run(run_id, pytest.fail)
        assert not (door.data / "runs" / run_id).exists()
        assert list_runs() == []
        Cluster(_NAME).stop()
        assert not door.is_open(_NAME)
    until(lambda: not list_clusters(), 60, "the end of the first home's mirror")


def test_a_run_goes_on_and_leaves_as_a_program_from_another_home(
    door: Door, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With the values that it was made of, which nobody there has had."""
    cell = STEPS + "print('n', len(data), data[0])\n"
    start_cluster("nextdoor", 1, name=_NAME)
    made_of: dict[str, Any] = {"data": np.ones(400_000)}
    run = search(cell, namespace=made_of, metric="score", trials=12, wait=False)
    run_id = run.id
    until(lambda: len(run.trials.query("state == 'complete'")) >= 2, 60, "two trials")
    run.cancel()
    until(lambda: run.state == "cancelled", 60, "its end")
    with _another_home(monkeypatch):
        other: dict[str, Any] = {"data": np.zeros(400_000)}
        resumed = search(cell, namespace=other, metric="score", trials=12, resume=run_id)
        assert resumed.state == "complete"
        assert resumed.logs(11) == "n 400000 1.0\n"
        assert f"data changed since run {run_id} was made" in caplog.text
        assert_clean(resumed)
        program = tmp_path / "program.py"
        assert main(["runs", "export", run_id, str(program), "--as", "script"]) == 0
        assert "data" in program.read_text()
        Cluster(_NAME).stop()
    until(lambda: not list_clusters(), 60, "the end of the first home's mirror")


def test_a_cluster_is_listed_attached_and_ended_from_another_home(
    door: Door, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    start_cluster("nextdoor", 1, name=_NAME)
    with _another_home(monkeypatch):
        assert main(["cluster", "list"]) == 0
        assert (
            f"{_NAME} in the house next door (1 worker): `jupyter ddl cluster attach {_NAME}` uses "
            "it." in capsys.readouterr().out
        )
        assert main(["cluster", "attach", _NAME]) == 0
        assert "this host's notebooks can use it (1 worker)" in capsys.readouterr().out
        assert [each.name for each in list_clusters()] == [_NAME]
    with _another_home(monkeypatch):
        assert main(["cluster", "stop", _NAME]) == 0
        assert f"Cluster {_NAME} in the house next door is deleted." in capsys.readouterr().out
        assert not door.is_open(_NAME)
    until(lambda: not list_clusters(), 60, "the end of the first home's mirror")


def test_the_panel_shows_it_with_its_runs_and_no_kernel(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_cluster("nextdoor", 1, name=_NAME)
    run_id = start_search(STEPS, 200).id
    with _another_home(monkeypatch) as other:
        with serving(other) as server:
            browser = server.connect()
            browser.wait_kind("clusters", lambda m: m["clusters"] and not m["elsewhere"])
            browser.wait_kind("runs", lambda m: [each["run_id"] for each in m["runs"]] == [run_id])
            assert browser.ask("watch", run_id=run_id)["kind"] == "done"
            first = browser.watch_run(run_id, lambda s: s["state"] == "running")
            browser.watch_run(run_id, lambda s: s["seq"] > first["seq"] + 10)
            assert browser.ask("stop_run", run_id=run_id)["kind"] == "done"
            browser.watch_run(run_id, lambda s: s["state"] == "cancelled")
            browser.close()
        Cluster(_NAME).stop()
    until(lambda: not list_clusters(), 60, "the end of the first home's mirror")
