"""Hosts whose clocks are minutes apart, or set while they work: no connection is refused for it."""

from __future__ import annotations

import os
import signal

import dask
import pytest
from distributed import Security

from jupyter_ddl.client.clusters import connect_cluster, start_cluster
from tests.fake_clock import FakeClock
from tests.integration.backends.foreign import foreign_cluster
from tests.leaks import Home
from tests.run_tools import STEPS, assert_clean, outcomes, start_search, starts, wait_for, workers
from tests.until import PATIENCE_S

pytestmark = pytest.mark.integration

_SLOW = STEPS.replace("range(4)", "range(40)")


def _configured(security: Security) -> dask.config.set:
    tls = "distributed.comm.tls"
    return dask.config.set(
        {
            f"{tls}.ca-file": security.tls_ca_file,
            f"{tls}.client.cert": security.tls_client_cert,
            f"{tls}.client.key": security.tls_client_key,
        }
    )


def test_workers_minutes_apart_of_which_one_is_set_back_lose_nothing(home: Home) -> None:
    clocks = [FakeClock(home.root / str(each), each) for each in (300, -300)]
    with foreign_cluster(home, n_workers=0) as foreign, _configured(foreign.security):
        for clock in clocks:
            foreign.add_workers(1, variables=clock.variables())
        connected = connect_cluster(foreign.address)
        run = start_search(_SLOW, 4)
        wait_for(run, lambda seen: seen.counts.running == 2)
        clocks[1].set(-3900)
        run.wait(PATIENCE_S)
        assert run.state == "complete"
        assert_clean(run, 4)
        begun = starts(run)
        assert len(begun) == 4, "nothing is repeated"
        by_worker = sorted({each.worker: each.at_s for each in begun}.values())
        assert by_worker[-1] - by_worker[0] > 3000, "they had clocks of their own"
        connected.stop()


def test_a_host_that_is_set_back_gets_workers_in_place_of_lost_ones(
    stopping: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock(stopping.root / "clock", 3600)
    with monkeypatch.context() as patch:
        for name, value in clock.variables().items():
            patch.setenv(name, value)
        start_cluster(n_workers=2, name="test")
    run = start_search(_SLOW, 4)
    wait_for(run, lambda seen: seen.counts.running == 2)
    clock.set(-3600)
    for worker in workers():
        os.kill(worker.pid, signal.SIGKILL)
    run.wait(PATIENCE_S)
    assert run.state == "complete", "new ones have connected"
    assert_clean(run, 4)
    assert len(outcomes(run, "evicted")) == 2
    times = [each.at_s for each in starts(run)]
    assert times[0] - times[-1] > 7000, "it was set"
