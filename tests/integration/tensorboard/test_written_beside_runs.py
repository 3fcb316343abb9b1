"""``--tensorboard`` on a real cluster: written while the run goes on, whoever dies meanwhile."""

from __future__ import annotations

import contextlib
from pathlib import Path

import psutil
import pytest

from jupyter_ddl.client.run import Run
from jupyter_ddl.tracking.tensorboard.writing import tensorboard_dir
from tests.leaks import Home, processes_of
from tests.run_tools import STEPS, kill_controller, start_search, wait_for
from tests.until import PATIENCE_S, until

pytest.importorskip("tensorboard")
pytestmark = pytest.mark.integration


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("events.*"))
    }


def writers(home: Home) -> list[int]:
    found = []
    for process in processes_of(home):
        with contextlib.suppress(psutil.Error):  # it has just ended
            if "jupyter_ddl.tracking.tensorboard" in process.cmdline():
                found.append(process.pid)
    return found


def assert_complete(run: Run, home: Home, tmp_path: Path) -> None:
    """What was written beside the run is what is written from its whole ledger."""
    until(lambda: not writers(home), 15.0, "the end of the writer")
    whole = contents(run.tensorboard(tmp_path / "whole"))
    assert len(whole) == run.spec.n_trials + 1
    assert contents(tensorboard_dir(run.id)) == whole


def test_files_grow_with_the_run_and_are_complete_after_it(
    cluster: object, cluster_home: Home, tmp_path: Path
) -> None:
    run = start_search(STEPS.replace("range(4)", "range(30)"), 4, tensorboard=True)
    first = tensorboard_dir(run.id) / "trial-0000"
    until(lambda: list(first.glob("events.*")), 20.0, "a file of the first trial")
    assert run.state == "running"
    run.wait(PATIENCE_S)
    assert_complete(run, cluster_home, tmp_path)


def test_a_killed_controller_costs_no_curve(
    cluster: object, cluster_home: Home, tmp_path: Path
) -> None:
    run = start_search(STEPS.replace("range(4)", "range(20)"), 6, tensorboard=True)
    wait_for(run, lambda s: s.counts.complete >= 1)
    until(lambda: contents(tensorboard_dir(run.id)), 20.0, "files")
    kill_controller()
    until(lambda: not writers(cluster_home), 10.0, "the end of the writer with its controller")
    run.wait(PATIENCE_S)  # starts the controller again
    assert_complete(run, cluster_home, tmp_path)


def test_runs_that_did_not_ask_have_no_writer(cluster: object) -> None:
    run = start_search(STEPS, 2).wait(PATIENCE_S)
    assert not tensorboard_dir(run.id).exists()
