"""Kernels that share what takes seconds to start: one for tests that start nothing, a cluster."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest

from jupyter_ddl.protocol.cluster import ClusterSpec
from tests.leaks import Home, end_processes, leftovers_of, new_home
from tests.live_kernel import LiveKernel
from tests.shared_cluster import SharedCluster, lent, shared_cluster


@pytest.fixture(scope="module")
def idle_kernel() -> Iterator[LiveKernel]:
    """A kernel with the extension loaded; a cluster that a test starts in it is a leftover."""
    with new_home() as home:
        live = LiveKernel(home)
        live.run("%load_ext jupyter_ddl").check()
        yield live
        live.close(stop_clusters=False)
        found = leftovers_of(home)
        end_processes(home)
        if found:
            pytest.fail("left behind:\n" + "\n".join(found), pytrace=False)


@pytest.fixture(scope="package")
def kept_cluster() -> Iterator[SharedCluster]:
    """Two workers whose zygotes have torch."""
    with shared_cluster(ClusterSpec(name="local", n_workers=2, prewarm=("torch",))) as found:
        yield found


@pytest.fixture
def attached_kernel(
    home: Home, kept_cluster: SharedCluster, monkeypatch: pytest.MonkeyPatch
) -> Iterator[LiveKernel]:
    """A kernel of this test alone, with the extension, on the cluster that tests share."""
    with lent(kept_cluster, monkeypatch) as cluster:
        live = LiveKernel(dataclasses.replace(kept_cluster.home, work=home.work))
        live.run(f"%load_ext jupyter_ddl\n%cluster attach {cluster.name}").check()
        yield live
        live.close(stop_clusters=False)
