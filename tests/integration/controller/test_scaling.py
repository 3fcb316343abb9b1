"""Workers that are added and taken away while runs use them."""

from __future__ import annotations

import pytest

from jupyter_ddl.client.clusters import Cluster, start_cluster
from jupyter_ddl.client.session import session
from jupyter_ddl.errors import SpecError
from jupyter_ddl.protocol.cluster import ClusterSpec
from jupyter_ddl.protocol.snapshot import RunSnapshot
from tests.leaks import Home
from tests.run_tools import SLEEPING, STEPS, assert_clean, start_search, wait_for
from tests.until import PATIENCE_S, until

pytestmark = pytest.mark.integration


def n_workers(cluster: Cluster, count: int, timeout_s: float = 20.0) -> None:
    until(lambda: len(cluster.status().workers) == count, timeout_s, f"{count} workers")


def test_busy_workers_go_last(stopping: Home) -> None:
    cluster = start_cluster(n_workers=1, name="test")
    run = start_search(SLEEPING, 1)
    wait_for(run, lambda seen: seen.counts.running == 1)
    cluster.scale(3)
    n_workers(cluster, 3)
    busy = [worker.name for worker in cluster.status().workers if worker.n_busy]
    assert len(busy) == 1
    cluster.scale(1)
    n_workers(cluster, 1)
    assert [worker.name for worker in cluster.status().workers] == busy
    assert run.snapshot().n_evictions == 0
    run.cancel("now")
    run.wait(PATIENCE_S)


def test_a_busy_worker_that_is_taken_away_costs_an_eviction_only(stopping: Home) -> None:
    cluster = start_cluster(n_workers=2, name="test")
    run = start_search(STEPS.replace("range(4)", "range(30)"), 2, seed=1)
    wait_for(run, lambda seen: seen.counts.running == 2)
    cluster.scale(1)
    run.wait(PATIENCE_S)
    assert_clean(run, 2)
    assert run.snapshot().n_evictions == 1
    with pytest.raises(SpecError, match="-1 workers"):
        cluster.scale(-1)


def test_an_adaptive_cluster_grows_from_nothing_and_shrinks_back(stopping: Home) -> None:
    session().start(ClusterSpec(name="test", n_workers=0, shrink_after_s=1.0))
    cluster = Cluster("test")
    assert cluster.adapt(0, 2).adapt == (0, 2)
    run = start_search(STEPS, 8, seed=1).wait(PATIENCE_S)
    assert_clean(run, 8)
    n_workers(cluster, 0)
    assert start_search(STEPS, 2).wait(PATIENCE_S).state == "complete"


def test_a_run_without_workers_says_why_it_waits_and_can_be_cancelled(stopping: Home) -> None:
    start_cluster(n_workers=0, name="test")
    run = start_search(SLEEPING, 2)
    reasons: list[str] = []

    def poll(seen: RunSnapshot) -> None:
        if seen.paused and not reasons:
            reasons.append(seen.paused)
            run.cancel("next_report")

    run.wait(20, on_snapshot=poll)
    assert reasons == ["the cluster has no workers; `%cluster scale N` starts some"]
    assert run.state == "cancelled"
    assert_clean(run)


def test_a_run_that_waits_for_workers_begins_when_they_come(stopping: Home) -> None:
    cluster = start_cluster(n_workers=0, name="test")
    run = start_search(STEPS, 3)
    cluster.scale(1)
    run.wait(PATIENCE_S)
    assert_clean(run, 3)
