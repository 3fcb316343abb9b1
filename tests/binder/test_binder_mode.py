"""Binder mode: what it is recognised by, how large clusters are there, and what a notebook sees."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jupyter_ddl.binder_mode import binder_sentence, check_backend, in_binder, sized_for_binder
from jupyter_ddl.errors import ClusterError
from jupyter_ddl.protocol.cluster import ClusterSpec
from tests.leaks import Home
from tests.live_kernel import LiveKernel

_MIB = 1 << 20
BINDER = {
    "BINDER_LAUNCH_HOST": "https://mybinder.org/",
    "BINDER_REPO_URL": "https://github.com/example/example",
    "CPU_LIMIT": "1.0",
    "MEM_LIMIT": str(2048 * _MIB),
}
"""As BinderHub and JupyterHub set them for a container of one CPU and 2 GB."""


@pytest.fixture
def visitor(monkeypatch: pytest.MonkeyPatch, home: Home) -> Iterator[LiveKernel]:
    """A kernel as in such a container."""
    for name, value in BINDER.items():
        monkeypatch.setenv(name, value)
    live = LiveKernel(home)
    live.run("%load_ext jupyter_ddl").check()
    yield live
    live.close()


def test_elsewhere_a_cluster_is_what_was_asked_for() -> None:
    spec = ClusterSpec(backend="kube")
    limits_only = {name: value for name, value in BINDER.items() if name.endswith("LIMIT")}
    for environ in ({}, limits_only, {**BINDER, "JUPYTER_DDL_BINDER": "off"}):
        assert not in_binder(environ)
        assert sized_for_binder(spec, environ) is spec
        assert binder_sentence(environ) == ""


@pytest.mark.parametrize("name", ["BINDER_SERVICE_HOST", "BINDER_LAUNCH_HOST", "BINDER_REF_URL"])
def test_one_variable_of_binderhub_is_enough(name: str) -> None:
    assert in_binder({name: "something"})
    assert not in_binder({name: ""})


def test_one_cpu_and_two_gigabytes_hold_one_worker_with_the_rest_for_its_trial() -> None:
    spec = sized_for_binder(ClusterSpec(), BINDER)
    assert spec.n_workers == 1
    assert spec.memory_per_worker_bytes is not None
    assert 900 * _MIB <= spec.memory_per_worker_bytes <= 1300 * _MIB
    assert spec.idle_timeout_s == 600
    two = sized_for_binder(ClusterSpec(n_workers=2), BINDER)
    assert two.memory_per_worker_bytes is not None
    assert two.n_workers == 2
    assert 300 * _MIB <= two.memory_per_worker_bytes < spec.memory_per_worker_bytes / 2


def test_more_workers_than_the_memory_holds_are_refused_unless_their_share_is_said() -> None:
    with pytest.raises(ClusterError, match=r"8 workers .* 2 GiB hold 2; .* -n 2"):
        sized_for_binder(ClusterSpec(n_workers=8), BINDER)
    said = ClusterSpec(n_workers=8, memory_per_worker_bytes=100 * _MIB, idle_timeout_s=60)
    assert sized_for_binder(said, BINDER) == said


def test_a_hub_without_limits_gets_a_small_cluster_all_the_same() -> None:
    spec = sized_for_binder(ClusterSpec(), {"BINDER_REQUEST": "v2/gh/example/example/HEAD"})
    assert spec.n_workers is not None
    assert 1 <= spec.n_workers <= 2


def test_a_backend_is_refused_unless_it_is_configured() -> None:
    for backend in ("kube", "gateway", "dask"):
        with pytest.raises(ClusterError, match=rf"{backend} .* in Binder.*JUPYTER_DDL_BINDER"):
            check_backend(backend, BINDER)
    check_backend("local", BINDER)
    check_backend("gateway", {**BINDER, "JUPYTER_DDL_BINDER": "kube, gateway"})


@pytest.mark.kernel
def test_a_visitor_gets_a_small_local_cluster_and_is_asked_for_nothing(
    visitor: LiveKernel,
) -> None:
    out = visitor.run("%cluster").check()
    assert "Binder mode: 1 CPU and 2 GiB for everything" in out.everything
    for line in ("%cluster start kube", "%cluster start gateway", "%cluster connect tls://x:1"):
        refused = visitor.run(line, timeout_s=10)
        assert refused.status == "error"
        assert refused.error is not None
        assert "in Binder, where clusters are local" in refused.error[1]
        assert "\n" not in refused.error[1].strip()
    # No cluster yet: the cell starts one that fits.
    visitor.run("numbers = range(3)").check()
    cell = "%%distribute map --over n in numbers -o run\nn * n"
    visitor.run(cell, timeout_s=60).check()
    assert visitor.value("run.values") == "[0, 1, 4]"
    shown = visitor.run("%cluster").check().everything
    assert "Binder mode" in shown
    visitor.run("from jupyter_ddl.client.clusters import current_cluster").check()
    status = "current_cluster().status()"
    assert visitor.value(f"len({status}.workers)") == "1"
    assert float(visitor.value(f"{status}.idle_left_s")) <= 600
    limit = int(visitor.value(f"{status}.memory_per_worker_bytes"))
    assert 900 * _MIB <= limit <= 1300 * _MIB
    refused = visitor.run("%cluster start -n 8 --name large", timeout_s=10)
    assert refused.error is not None
    assert "hold 2" in refused.error[1]
