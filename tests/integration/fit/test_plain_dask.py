"""Plain Dask code on a cluster of ours."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest
from until import until

import jupyter_ddl
from jupyter_ddl.client.run import Run
from jupyter_ddl.errors import FitStoppedError
from jupyter_ddl.estimators.context import distributed_fits
from jupyter_ddl.estimators.exchange import FitSetting

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]


def _setting(**options: Any) -> FitSetting:
    return FitSetting(namespace=globals(), folder=Path(__file__).parent, **options)


def _waiting(path: Path, value: int) -> Any:
    """A task that waits until a file is there; its code travels, for workers have no tests."""
    import dask

    def wait(path: str, value: int) -> int:
        import time
        from pathlib import Path

        deadline = time.monotonic() + 60
        while not Path(path).exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        return value

    return dask.delayed(wait)(str(path), value)


def test_the_client_is_connected_by_tls_and_dasks_default(cluster: Any) -> None:
    import dask
    from distributed import default_client

    client = jupyter_ddl.client()
    assert client is jupyter_ddl.client()
    assert client is default_client()
    assert client.scheduler.address.startswith("tls://127.0.0.1")
    pids = dask.compute(*(dask.delayed(os.getpid, pure=False)() for _ in range(4)))
    assert os.getpid() not in pids
    limits = {w["memory_limit"] for w in client.scheduler_info(n_workers=-1)["workers"].values()}
    assert all(limits)
    cluster.stop()
    assert client.status == "closed"


def test_computations_of_a_cell_of_fits_are_a_row_of_its_run(cluster: Any, tmp_path: Path) -> None:
    import dask
    from distributed import Client

    client, before = jupyter_ddl.client(), Client.get
    gate = tmp_path / "go"
    waiting = [_waiting(gate, n) for n in range(20)]
    seen: list[Any] = []

    def open_the_gate() -> None:
        until(lambda: any(s.rows and s.rows[0].metrics for s in seen), 60, "the row has counts")
        gate.touch()

    opener = threading.Thread(target=open_the_gate)
    opener.start()
    with distributed_fits(_setting(on_snapshot=seen.append)) as fits:
        assert Client.get is not before
        assert sum(dask.compute(*waiting)) == 190
        assert _waiting(gate, 7).compute() == 7
        with pytest.raises(ZeroDivisionError):
            dask.delayed(lambda: 1 / 0)().compute()
    opener.join()
    assert Client.get is before
    assert not client.futures
    assert fits.run is not None
    counted = next(s.rows[0].metrics for s in seen if s.rows and s.rows[0].metrics)
    assert counted["computations"] == 1
    assert counted["done"] == 0
    assert 2 <= counted["processing"] <= 20
    snapshot = fits.run.snapshot()
    assert (snapshot.state, snapshot.n_trials, snapshot.counts.complete) == ("complete", 1, 1)
    assert snapshot.rows[0].params == {"dask": "computations of the cell"}
    last = snapshot.rows[0].metrics
    assert (last["computations"], last["done"], last["processing"]) == (3, 22, 0)


def test_stopping_the_run_ends_a_computation(cluster: Any, tmp_path: Path) -> None:
    client = jupyter_ddl.client()
    runs: list[Run] = []

    def stop() -> None:
        until(lambda: runs and runs[0].snapshot().rows, 60, "the run has its row")
        runs[0].cancel("now")

    stopper = threading.Thread(target=stop)
    stopper.start()
    endless = _waiting(tmp_path / "never", 1)
    with (
        pytest.raises(FitStoppedError, match="1 Dask computations had begun"),
        distributed_fits(_setting(on_run=runs.append)),
    ):
        endless.compute()
    stopper.join()
    (tmp_path / "never").touch()
    assert runs[0].state == "cancelled"
    until(lambda: not client.futures, 10, "the computation is released")
