"""Every backend keeps what is expected of one; the fake one, too."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from multiprocessing import resource_tracker

import dask.config
import psutil
import pytest

from jupyter_ddl.backends.base import Backend, BackendPlugin
from jupyter_ddl.client.clusters import cluster_spec
from jupyter_ddl.protocol.cluster import ClusterSpec
from jupyter_ddl.testing.backends import BackendCase, BackendContract, FakeBackend, FakePlugin
from tests.integration.backends.foreign import Foreign, foreign_cluster
from tests.integration.conftest import own_dask_config  # noqa: F401 - for every test here
from tests.leaks import Home, new_home

_HELPERS = ("resource_tracker", "forkserver")
"""Of Python's multiprocessing: they end with the process that has started them."""


# It lives as long as this process: the first test that needs it must not be told of it.
resource_tracker.ensure_running()


class TestFake(BackendContract):
    @pytest.fixture
    def case(self) -> BackendCase:
        async def lose(backend: Backend, address: str) -> None:
            assert isinstance(backend, FakeBackend)
            backend.lose_worker(address)

        return BackendCase(ClusterSpec(n_workers=2), lose_worker=lose, plugin=FakePlugin())


def _processes() -> list[str]:
    """Below this one, but for helpers of Python itself."""
    found = []
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            line = " ".join(child.cmdline())
            if child.status() != psutil.STATUS_ZOMBIE and not any(h in line for h in _HELPERS):
                found.append(line)
    return found


@pytest.mark.integration
class TestLocal(BackendContract):
    @pytest.fixture
    def case(self, home: Home) -> BackendCase:
        async def lose(backend: Backend, address: str) -> None:
            pids = await backend.client.run(os.getpid, workers=[address])
            os.kill(pids[address], signal.SIGKILL)  # its nanny, which is here, brings another one

        spec = cluster_spec("local", 2)
        return BackendCase(spec, leftovers=_processes, lose_worker=lose)


@pytest.mark.integration
class TestAddress(BackendContract):
    @pytest.fixture(scope="class")
    @classmethod
    def foreign(cls) -> Iterator[Foreign]:
        """Each test leaves it as it was: that is what the contract asks for."""
        with new_home() as home, foreign_cluster(home, 2, nanny=False, tls=False) as found:
            yield found

    @pytest.fixture
    def case(self, home: Home, foreign: Foreign) -> BackendCase:
        def leftovers() -> list[str]:
            with foreign.client() as client:
                owner = client.get_metadata(["jupyter-ddl-controller"], None)
                workers = client.scheduler_info(n_workers=-1)["workers"]
            assert len(workers) == 2, "they go on"
            return [] if owner is None else [f"the scheduler's owner is {owner}"]

        return BackendCase(cluster_spec("dask", address=foreign.address), leftovers=leftovers)


@pytest.mark.integration
class TestGateway(BackendContract):
    @pytest.fixture(scope="class")
    @classmethod
    def server(cls) -> Iterator[psutil.Process]:
        pytest.importorskip("dask_gateway", reason="needs the extra gateway")
        pytest.importorskip("dask_gateway_server", reason="needs the extra gateway-server")
        from tests.integration.backends.test_gateway import gateway_server

        with (
            new_home() as home,
            pytest.MonkeyPatch.context() as environment,
            gateway_server(home, environment) as found,
        ):
            yield found

    @pytest.fixture
    def case(self, home: Home, server: psutil.Process) -> BackendCase:
        from tests.integration.backends.test_gateway import n_dask

        dask.config.refresh()  # the server's address is in the environment
        return BackendCase(
            cluster_spec("gateway", 2),
            leftovers=lambda: [f"{n} processes"] if (n := n_dask(server)) else [],
            chooses_workers=False,  # the gateway takes idle ones first
        )


# -- the contract itself: what does not keep it fails ----------------------------------------------


class _Careless(FakeBackend):
    """Says nothing, forgets who is to be kept, and can't be closed twice."""

    async def scale(self, n_workers: int, keep: object) -> None:
        await super().scale(n_workers, ())

    async def close(self) -> None:
        assert not self.is_closed
        await super().close()


class _CarelessPlugin(BackendPlugin):
    def make(self, spec: ClusterSpec) -> Backend:
        return _Careless(spec)


def test_a_backend_that_forgets_who_is_to_be_kept_does_not_pass() -> None:
    case = BackendCase(ClusterSpec(n_workers=2), plugin=_CarelessPlugin())
    with pytest.raises(AssertionError):
        BackendContract().test_its_life(case)
    with pytest.raises(AssertionError):
        BackendContract().test_before_a_start_it_can_be_looked_at_and_closed(case)


def test_a_start_that_leaves_something_does_not_pass() -> None:
    left = ["a process"]
    case = BackendCase(
        ClusterSpec(n_workers=2), leftovers=lambda: left, plugin=FakePlugin(), gone_within_s=0.1
    )
    with pytest.raises(AssertionError, match="a process"):
        BackendContract().test_a_start_that_is_late_is_refused_and_leaves_nothing(case)
