"""``%cluster connect``: a cluster of somebody else is used, and left as it was found."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Callable, Iterator

import dask
import msgspec
import pytest
from distributed import Security

from jupyter_ddl.backends.address import AddressBackend
from jupyter_ddl.client.api import search, train
from jupyter_ddl.client.clusters import cluster_spec, connect_cluster
from jupyter_ddl.client.dask_client import connect_client
from jupyter_ddl.errors import ClusterError, OptionError, WorkerEnvironmentError
from jupyter_ddl.store.connection import read_connection
from tests.integration.backends.foreign import Foreign, certificates, foreign_cluster, security_of
from tests.leaks import Home
from tests.run_tools import (
    STEPS,
    assert_clean,
    kill_controller,
    outcomes,
    start_search,
    starts,
    wait_for,
)
from tests.until import PATIENCE_S, until

pytestmark = pytest.mark.integration

# Long enough to be amid it when the scheduler goes.
_SLOW = STEPS.replace("range(4)", "range(40)")
_DDP = """
import torch, torch.distributed as dist
total = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(total)
answer = total.item()
"""


@pytest.fixture
def foreign(home: Home) -> Iterator[Foreign]:
    with foreign_cluster(home) as found, configured(found.security):
        yield found


def configured(security: Security) -> dask.config.set:
    """What a user has in the configuration file."""
    return dask.config.set(
        {
            "distributed.comm.tls.ca-file": security.tls_ca_file,
            "distributed.comm.tls.client.cert": security.tls_client_cert,
            "distributed.comm.tls.client.key": security.tls_client_key,
        }
    )


def _works_for_its_owner(found: Foreign, n_workers: int) -> bool:
    with found.client() as client:
        plugins = client.run(lambda dask_worker: list(dask_worker.plugins))
        assert all("jupyter_ddl" not in names for names in plugins.values())
        assert len(plugins) == n_workers
        return client.submit(sum, [1, 2], pure=False).result(10) == 3


def test_a_search_and_ddp_run_there_and_stop_leaves_it_clean(home: Home, foreign: Foreign) -> None:
    before = foreign.below()
    connected = connect_cluster(foreign.address)
    assert len(connected.status().workers) == 2
    run = search(STEPS, namespace={}, metric="score", trials=4)
    assert_clean(run, 4)
    group = train(_DDP, namespace={}, n=2, bring=("answer",))
    assert group.value("answer", rank=0) == 3.0
    assert connect_client().submit(sum, [1, 2], pure=False).result(10) == 3
    for refused in (lambda: connected.scale(3), lambda: connected.adapt(0, 4)):
        with pytest.raises(ClusterError, match="was connected to, not started here"):
            refused()
    with pytest.raises(ClusterError, match="in use by another controller"):
        connect_cluster(foreign.address, name="second")

    connected.stop()
    until(lambda: foreign.below() <= before, 10, "the workers' own processes")
    assert _works_for_its_owner(foreign, 2)


@pytest.mark.parametrize("is_late", [False, True], ids=["at once", "later"])
def test_a_new_scheduler_at_the_address_repeats_what_was_in_flight(
    home: Home, foreign: Foreign, is_late: bool
) -> None:
    connected = connect_cluster(foreign.address)
    run = start_search(_SLOW, 6)
    wait_for(run, lambda seen: seen.counts.running == 2)
    foreign.kill_scheduler()
    if is_late:
        until(lambda: "has lost its scheduler" in connected.logs(), 30, "a client that gives up")
    foreign.start_scheduler()
    foreign.add_workers(2)
    run.wait(PATIENCE_S)
    assert run.state == "complete"
    assert run.errors == {}
    assert_clean(run, 6)
    assert 1 <= len(outcomes(run, "evicted")) <= 2
    connected.stop()


def test_a_scheduler_that_is_slow_is_not_lost(home: Home, foreign: Foreign) -> None:
    """It answers nobody for longer than two calls wait; nothing is repeated."""
    connected = connect_cluster(foreign.address)
    run = start_search(_SLOW, 4)
    wait_for(run, lambda seen: seen.counts.running == 2)
    with foreign.scheduler_stands_still():
        until(lambda: re.search(r"silent for [6-9] s", connected.status().trouble), 30)
        assert connected.status().state == "degraded"
    until(lambda: connected.status().state == "ready", 20, "an answer")
    run.wait(PATIENCE_S)
    assert run.state == "complete"
    assert_clean(run, 4)
    assert len(starts(run)) == 4, "nothing is repeated"
    assert "is lost" not in connected.logs(n_lines=1000)
    connected.stop()


def test_a_scheduler_that_stays_silent_is_lost_after_its_deadline(foreign: Foreign) -> None:
    seen: list[str] = []
    lost = "the scheduler is lost"

    async def live() -> None:
        spec = cluster_spec("dask", address=foreign.address)
        settings = {**spec.settings, "lost_after_s": 0.5}
        backend = AddressBackend(msgspec.structs.replace(spec, settings=settings))
        await backend.start(lambda _: None)
        first = backend.client

        async def repair_until(is_over: Callable[[], bool]) -> None:
            async with asyncio.timeout(40):
                while not is_over():
                    await backend.repair()
                    seen.append(backend.trouble.split(":")[0].partition(" for ")[0])

        try:
            with foreign.scheduler_stands_still():
                await repair_until(lambda: seen[-2:] == [lost, lost])
            await repair_until(lambda: not backend.trouble)
            assert backend.client is not first
            assert await backend.client.submit(sum, [1, 2], pure=False) == 3
        finally:
            await backend.close()

    asyncio.run(live())
    assert [key for key, _ in itertools.groupby(seen)] == [
        "the scheduler is connected but silent",
        lost,
        "",
    ]
    assert _works_for_its_owner(foreign, 2)


def test_workers_without_a_nanny_go_on_after_the_lease(home: Home) -> None:
    with foreign_cluster(home, 1, nanny=False) as found, configured(found.security):
        before = found.below()
        connect_cluster(found.address, idle_timeout_s=1.0)
        until(lambda: read_connection("dask") is None, 20, "the end of the lease")
        until(lambda: found.below() <= before, 10, "the worker's own processes")
        assert _works_for_its_owner(found, 1)
        worker = found.processes[-1]
        worker.terminate()
        # Dask gives each of its connections up to 30 s to close.
        assert worker.wait(PATIENCE_S) == 0, "SIGTERM is Dask's own again"


def test_a_killed_controller_is_followed_by_another(home: Home) -> None:
    with foreign_cluster(home, 1) as found, configured(found.security):
        connect_cluster(found.address)
        kill_controller("dask")
        again = connect_cluster(found.address)
        assert_clean(search(STEPS, namespace={}, metric="score", trials=2), 2)
        again.stop()
        assert _works_for_its_owner(found, 1)


def _refused(address: str, expected: str) -> None:
    with pytest.raises(ClusterError, match=expected) as refusal:
        connect_cluster(address)
    assert "\n" not in refusal.value.message
    assert read_connection("dask") is None


def test_what_is_no_usable_scheduler_is_refused_in_one_line(home: Home) -> None:
    with foreign_cluster(home, 1) as found, configured(found.security):
        rest = found.address.partition("://")[2]
        with found.client() as client:
            worker = next(iter(client.scheduler_info()["workers"]))
        _refused("tls://127.0.0.1:1", "nothing listens at port 1")
        _refused("tls://no-such-host.invalid:8786", "no-such-host.invalid is not known")
        _refused(f"tcp://{rest}", f"a scheduler with TLS is tls://{rest}")
        _refused(worker, "is a Dask worker, not a scheduler; its scheduler is")


def test_plain_tcp_works_where_there_is_no_tls(home: Home) -> None:
    with foreign_cluster(home, 0, tls=False) as found:
        rest = found.address.partition("://")[2]
        with pytest.raises(OptionError, match=r"no distributed\.comm\.tls\.ca-file"):
            connect_cluster(f"tls://{rest}")
        with configured(security_of(certificates(home.work))):
            _refused(f"tls://{rest}", f"does not speak TLS.*tcp://{rest}")
        _refused(found.address, "has no workers")
        found.add_workers(1)
        connected = connect_cluster(found.address)
        assert_clean(search(STEPS, namespace={}, metric="score", trials=1), 1)
        connected.stop()


def test_workers_that_lack_the_package_are_refused(home: Home) -> None:
    with foreign_cluster(home, 0, tls=False) as found:
        found.add_workers(1, nanny=False, has_jupyter_ddl=False)
        with pytest.raises(WorkerEnvironmentError, match=r"1 of 1 workers .* has no jupyter_ddl"):
            connect_cluster(found.address)
        assert _works_for_its_owner(found, 1)
