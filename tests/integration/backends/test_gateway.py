"""``%cluster start gateway`` against a real Dask Gateway with its local backend."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from jupyter_ddl.client.api import search, train
from jupyter_ddl.client.clusters import start_cluster
from jupyter_ddl.client.dask_client import connect_client
from jupyter_ddl.errors import ClusterError
from tests.integration.backends.foreign import outside
from tests.leaks import Home
from tests.run_tools import STEPS, assert_clean, kill_controller
from tests.until import until

pytest.importorskip("dask_gateway", reason="needs the extra gateway")
pytest.importorskip("dask_gateway_server", reason="needs the extra gateway-server")

pytestmark = pytest.mark.integration

_CONFIG = """
c.DaskGateway.backend_class = "dask_gateway_server.backends.local.UnsafeLocalBackend"
c.DaskGateway.authenticator_class = "dask_gateway_server.auth.SimpleAuthenticator"
c.DaskGateway.address = "127.0.0.1:{api}"
c.Proxy.address = "127.0.0.1:{proxy}"
c.LocalBackend.inherited_environment = ["PATH", "JUPYTER_DDL_HOME"]
# distributed installs neither dask-scheduler nor dask-worker any more.
c.ClusterConfig.scheduler_cmd = ["dask", "scheduler"]
c.ClusterConfig.worker_cmd = ["dask", "worker"]
"""
_SLOWLY = """
c.ClusterConfig.scheduler_cmd = ["sh", "-c", 'sleep 6; exec dask scheduler "$@"', "dask"]
"""
"""A scheduler that takes longer than any single request to the gateway may."""
_DDP = """
import torch, torch.distributed as dist
total = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(total)
answer = total.item()
"""


_SLOW_STEPS = """
import time
from jupyter_ddl import report, uniform
x = uniform(0.0, 1.0)
for step in range(10):
    time.sleep(0.3)
    report(step=step, score=x + step)
"""


@pytest.fixture
def gateway(home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[psutil.Process]:
    with gateway_server(home, monkeypatch) as server:
        yield server


@contextlib.contextmanager
def gateway_server(
    home: Home, monkeypatch: pytest.MonkeyPatch, config_lines: str = ""
) -> Iterator[psutil.Process]:
    """A server that lives outside the test's home."""
    api, proxy = _free_port(), _free_port()
    config = home.work / "gateway.py"
    config.write_text(_CONFIG.format(api=api, proxy=proxy) + config_lines)
    binaries = Path(sys.executable).parent
    variables = outside(home) | {"PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}"}
    program = shutil.which("dask-gateway-server", path=variables["PATH"])
    assert program is not None
    with (home.work / "gateway.log").open("wb") as log:
        server = subprocess.Popen(
            [program, "--config", str(config)],
            env=variables,
            cwd=home.work,
            stdout=log,
            stderr=log,
        )
    try:
        until(lambda: _answers(f"http://127.0.0.1:{proxy}/api/health"), 30, "the gateway")
        monkeypatch.setenv("DASK_GATEWAY__ADDRESS", f"http://127.0.0.1:{proxy}")
        yield psutil.Process(server.pid)
    finally:
        server.terminate()
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, ConnectionError):
        return False


def n_dask(gateway: psutil.Process) -> int:
    """Schedulers and workers that the gateway runs."""
    names = []
    for child in gateway.children(recursive=True):
        with contextlib.suppress(psutil.Error):
            names.append(" ".join(child.cmdline()))
    return sum("dask scheduler" in name or "dask worker" in name for name in names)


def test_verbs_run_on_a_gateway_and_stop_ends_its_cluster(
    home: Home, gateway: psutil.Process
) -> None:
    started = start_cluster("gateway", 2)
    assert len(started.status().workers) == 2
    assert_clean(search(STEPS, namespace={}, metric="score", trials=4), 4)
    run = train(_DDP, namespace={}, n=2, bring=("answer",))
    assert run.value("answer", rank=0) == 3.0
    assert connect_client().submit(sum, [1, 2], pure=False).result(10) == 3
    started.scale(1)
    until(lambda: len(started.status().workers) == 1, 20, "one worker less")
    started.stop()
    until(lambda: n_dask(gateway) == 0, 20, "the end of the gateway's processes")


def test_files_go_to_a_gateways_workers_and_come_home(
    home: Home, gateway: psutil.Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home.work)
    (home.work / "data.txt").write_text("21")
    started = start_cluster("gateway", 1)
    cell = "twice = str(2 * int(open('data.txt').read()))\nn = open('twice.txt', 'w').write(twice)"
    run = train(cell, namespace={}, n=1, bring_files="twice.txt")
    assert [file.path for file in run.spec.program.data] == ["data.txt"]
    assert not (home.work / "twice.txt").exists()
    started.stop()
    assert [path.read_text() for path in run.files.fetch("*.txt")] == ["42"], "it came with the end"


def test_a_killed_controller_leaves_no_second_cluster(home: Home, gateway: psutil.Process) -> None:
    start_cluster("gateway", 1)
    assert n_dask(gateway) >= 2
    kill_controller("gateway")
    again = start_cluster("gateway", 0)
    until(lambda: n_dask(gateway) == 1, 30, "the end of the former cluster")
    again.stop()


def test_a_cluster_that_the_gateway_has_ended_is_made_anew_and_its_trials_repeated(
    home: Home, gateway: psutil.Process
) -> None:
    started = start_cluster("gateway", 1)
    run = search(_SLOW_STEPS, namespace={}, metric="score", trials=4, wait=False)
    until(lambda: run.snapshot().counts.running == 1, 60, "a trial that runs")
    former = _note(home).read_text()
    _stop_as_somebody_else(former)
    until(lambda: _note(home).read_text() != former, 60, "another cluster")
    run.wait()
    assert_clean(run, 4)
    assert sum(row.evictions for row in run.snapshot().rows) == 1
    started.stop()
    until(lambda: n_dask(gateway) == 0, 20, "the end of the gateway's processes")


def test_a_gateway_that_takes_its_time_is_asked_once(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    with gateway_server(home, monkeypatch, _SLOWLY) as gateway:
        started = start_cluster("gateway", 1)
        former = _note(home).read_text()
        _stop_as_somebody_else(former)
        until(lambda: "is starting another" in started.status().trouble, 60, "the word of it")
        another = _note(home).read_text()
        assert another != former
        until(lambda: not started.status().trouble, 60, "a scheduler")
        assert _note(home).read_text() == another
        assert (home.work / "gateway.log").read_text().count("Created cluster") == 2
        started.stop()
        until(lambda: n_dask(gateway) == 0, 20, "the end of the gateway's processes")


def test_a_gateway_that_is_gone_is_named_with_the_reason(
    home: Home, gateway: psutil.Process
) -> None:
    started = start_cluster("gateway", 1)
    gateway.terminate()  # its clusters go with it
    until(lambda: "can't help: Cannot connect" in started.status().trouble, 60, "the word of it")
    started.stop()


def _stop_as_somebody_else(cluster: str) -> None:
    stop = f"from dask_gateway import Gateway; Gateway().stop_cluster({cluster!r})"
    subprocess.run([sys.executable, "-c", stop], check=True, timeout=60, capture_output=True)


def _note(home: Home) -> Path:
    return home.runtime / "jupyter_ddl" / "gateway.gateway"


def test_no_gateway_is_one_line(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DASK_GATEWAY__ADDRESS", raising=False)
    with pytest.raises(ClusterError, match=r"no gateway is configured: set gateway\.address"):
        start_cluster("gateway", 1)
    monkeypatch.setenv("DASK_GATEWAY__ADDRESS", "http://127.0.0.1:1")
    with pytest.raises(
        ClusterError, match=r"gateway http://127\.0\.0\.1:1 did not start a cluster"
    ):
        start_cluster("gateway", 1)
