"""``jupyter ddl`` as a user calls it: a process against a real cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_ddl.client.api import search
from jupyter_ddl.client.clusters import Cluster, list_clusters
from tests.leaks import Home
from tests.until import PATIENCE_S, until

pytestmark = pytest.mark.integration

_DDL = [sys.executable, "-m", "jupyter_ddl.cli"]
_QUICK = """
from jupyter_ddl import report, uniform
x = uniform(0.0, 1.0)
print("x is", x)
report(step=0, acc=x)
"""
_STEADY = """
import time
from jupyter_ddl import report, uniform
x = uniform(0.0, 1.0)
for step in range(600):
    time.sleep(0.05)
    report(step=step, acc=x)
"""


def _ddl(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*_DDL, *words],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def test_the_terminal_starts_lists_and_stops_clusters(home: Home) -> None:
    started = _ddl("cluster", "start", "-n", "1", "--name", "shell")
    assert (started.returncode, started.stderr) == (0, "")
    assert "cluster shell is ready with 1 worker" in started.stdout
    assert [each.name for each in list_clusters()] == ["shell"]

    assert "shell" in _ddl("cluster", "list").stdout
    assert "ready" in _ddl("cluster", "logs").stdout
    assert "has ended" in _ddl("cluster", "stop", "shell").stdout
    assert list_clusters() == []
    assert _ddl("cluster", "list").stdout == "No cluster is running.\n"


def test_the_terminal_reads_runs_of_a_notebook(home: Home, own_cluster: Cluster) -> None:
    run = search(_QUICK, namespace={}, metric="acc", trials=4, name="demo")

    listed = _ddl("runs").stdout
    assert run.id in listed
    assert "4 of 4" in listed
    assert "uniform(0.0, 1.0)" in _ddl("runs", "show", run.id).stdout or "uniform(0, 1)" in (
        _ddl("runs", "show", run.id).stdout
    )
    assert _ddl("runs", "logs", "last", "--trial", "2").stdout.startswith("x is ")
    assert "4 of 4 trials" in _ddl("runs", "attach", "last").stdout
    assert "The code is the same" in _ddl("runs", "compare", "last", run.id).stdout
    target = home.work / "demo.jsonl"
    assert _ddl("runs", "export", run.id, str(target)).returncode == 0
    again = _ddl("runs", "export", run.id, str(target))
    assert (again.returncode, "it exists already" in again.stderr) == (1, True)
    assert target.read_text().count("\n") > len(run.events())
    refused = _ddl("runs", "rm", run.id)
    assert (refused.returncode, run.directory.exists()) == (1, True)
    assert _ddl("runs", "rm", run.id, "--yes").returncode == 0
    assert not run.directory.exists()


def test_leaving_attach_leaves_the_run_and_stop_ends_it(home: Home, cluster: Cluster) -> None:
    run = search(_STEADY, namespace={}, metric="acc", trials=4, wait=False)
    output = home.work / "attach.txt"
    with output.open("w") as file:
        watching = subprocess.Popen(
            [*_DDL, "runs", "attach", run.id], stdout=file, stderr=subprocess.STDOUT
        )
        until(lambda: "running" in output.read_text(), 120, "progress of the attached run")

        watching.send_signal(signal.SIGINT)

        assert watching.wait(PATIENCE_S) == 0
    assert f"Run {run.id} goes on: `jupyter ddl runs attach {run.id}`" in output.read_text()
    assert run.state == "running"
    assert "stops at the next report" in _ddl("runs", "stop", run.id).stdout
    until(lambda: run.state == "cancelled", 120, "the end of the stopped run")
    again = _ddl("runs", "stop", run.id)
    assert again.returncode == 1
    assert "no controller drives run" in again.stderr


def test_an_error_is_one_line_on_stderr_with_an_exit_status(home: Home) -> None:
    done = _ddl("rns")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "did you mean 'runs'?" in done.stderr


def test_help_and_version_are_printed_and_a_closed_pipe_is_no_error_message(home: Home) -> None:
    assert "runs" in _ddl().stdout
    assert "--idle-timeout" in _ddl("cluster", "start", "--help").stdout
    assert _ddl("--version").stdout.strip()
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [*_DDL, "--help"],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    os.close(writing)
    assert "Traceback" not in done.stderr


def test_listing_runs_imports_no_engine(home: Home) -> None:
    code = (
        "import sys\nfrom jupyter_ddl.cli.main import main\nmain(['runs'])\n"
        "print(*sorted({'dask', 'distributed', 'torch', 'pandas', 'optuna', 'numpy', 'IPython'}"
        " & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    assert done.stdout.splitlines() == ["No runs yet.", ""]
    assert not Path(home.runtime / "jupyter_ddl" / "local.log").exists()
