"""When a controller ends by itself, what it leaves, and how a stale trace of one is taken."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from jupyter_ddl.client.clusters import list_clusters, start_cluster
from jupyter_ddl.client.session import session
from jupyter_ddl.errors import ClusterError
from jupyter_ddl.protocol.cluster import ClusterSpec
from jupyter_ddl.protocol.events import RunStarted
from jupyter_ddl.store.connection import connection_path, read_connection
from tests.leaks import Home, processes_of
from tests.run_tools import STEPS, assert_clean, controller_pid, start_search
from tests.until import PATIENCE_S, until

pytestmark = pytest.mark.integration

UNTIL_TWO = """
import os, pathlib, time
from jupyter_ddl import uniform
score = uniform(0.0, 1.0)
seen = pathlib.Path({folder!r})
(seen / os.environ["JUPYTER_DDL_OWNER"]).touch()
while len(list(seen.iterdir())) < 2:
    time.sleep(0.02)
"""
"""A trial that ends once two controllers have had it."""


def test_an_idle_cluster_ends_and_leaves_nothing(home: Home) -> None:
    session().start(ClusterSpec(name="test", n_workers=1, idle_timeout_s=1.0))
    socket = Path(session().info("test").socket)
    until(lambda: not processes_of(home), 15.0, "the end of the cluster")
    assert read_connection("test") is None
    assert not connection_path("test").exists()
    assert not socket.exists()


def test_a_cluster_that_nobody_can_reach_ends(home: Home) -> None:
    session().start(ClusterSpec(name="test", n_workers=1))
    connection_path("test").unlink()
    until(lambda: not processes_of(home), 15.0, "the end of the cluster")


def test_a_cluster_at_its_maximum_age_ends_and_the_next_one_goes_on(stopping: Home) -> None:
    session().start(ClusterSpec(name="test", n_workers=2, max_age_s=5.0))
    first = controller_pid()
    folder = stopping.work / "controllers"
    folder.mkdir()
    run = start_search(UNTIL_TWO.format(folder=str(folder)), 4, seed=6).wait(PATIENCE_S)
    assert_clean(run, 4)
    sessions = [event.session for event in run.events() if isinstance(event, RunStarted)]
    assert len(sessions) >= 2
    assert first not in [process.pid for process in processes_of(stopping)]


def test_a_connection_file_of_another_boot_is_ignored_and_removed(stopping: Home) -> None:
    start_cluster(n_workers=0, name="test")
    info = session().info("test")
    for pretended in (
        msgspec.structs.replace(info.process, boot_id="another"),
        msgspec.structs.replace(info.process, start_ticks=info.process.start_ticks - 60),
    ):
        stale = msgspec.structs.replace(info, name="stale", process=pretended)
        path = connection_path("stale")
        path.write_bytes(msgspec.json.encode(msgspec.structs.replace(stale, socket=f"{path}.s")))
        assert [cluster.name for cluster in list_clusters()] == ["test"]
        assert not path.exists()
    with pytest.raises(ClusterError, match="'stale' is not running"):
        session().info("stale")


def test_a_name_in_use_is_refused_and_the_log_stays_with_its_owner(stopping: Home) -> None:
    cluster = start_cluster(n_workers=0, name="test")
    with pytest.raises(ClusterError, match="is already running"):
        start_cluster(n_workers=0, name="test")
    assert "ready; resumed runs: none" in cluster.logs()


def test_two_clusters_know_nothing_of_each_other(stopping: Home) -> None:
    one = start_cluster(n_workers=1, name="one")
    run_one = start_search(STEPS, 3, seed=1)
    two = start_cluster(n_workers=1, name="two")
    run_two = start_search(STEPS, 3, seed=1)
    assert run_one.wait(PATIENCE_S).spec.cluster == "one"
    assert run_two.wait(PATIENCE_S).spec.cluster == "two"
    assert {cluster.name for cluster in list_clusters()} == {"one", "two"}
    assert one.status().controller_pid != two.status().controller_pid
    one.stop()
    assert [cluster.name for cluster in list_clusters()] == ["two"]
    assert start_search(STEPS, 2).wait(PATIENCE_S).state == "complete"
