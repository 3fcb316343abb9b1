"""Plain Dask code on a cluster of ours."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

import jupyter_ddl
from jupyter_ddl.client.run import Run
from jupyter_ddl.errors import FitStoppedError
from jupyter_ddl.sklearn_fit.context import distributed_fits
from jupyter_ddl.sklearn_fit.exchange import FitSetting
from tests.until import until

pytestmark = pytest.mark.integration


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


def test_the_client_is_connected_by_tls_and_dasks_default(own_cluster: Any) -> None:
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
    own_cluster.stop()
    assert client.status == "closed"


def test_computations_of_a_cell_of_fits_are_a_row_of_its_run(
    own_cluster: Any, tmp_path: Path
) -> None:
    import dask
    from distributed import Client

    client, before = jupyter_ddl.client(), Client.sync
    gate = tmp_path / "go"
    waiting = [_waiting(gate, n) for n in range(20)]
    seen: list[Any] = []

    def open_the_gate() -> None:
        until(lambda: any(s.rows and s.rows[0].metrics for s in seen), 60, "the row has counts")
        gate.touch()

    opener = threading.Thread(target=open_the_gate)
    opener.start()
    with distributed_fits(
        _setting(on_snapshot=lambda snapshot: seen.append(snapshot.decode()))
    ) as fits:
        assert Client.sync is not before
        assert sum(dask.compute(*waiting)) == 190
        assert _waiting(gate, 7).compute() == 7
        with pytest.raises(ZeroDivisionError):
            dask.delayed(lambda: 1 / 0)().compute()
    opener.join()
    assert Client.sync is before
    assert not client.futures
    assert fits.run is not None
    counted = next(s.rows[0].metrics for s in seen if s.rows and s.rows[0].metrics)
    assert (counted["done"], counted["tasks"]) == (0, 20)
    assert 2 <= counted["processing"] <= 20
    snapshot = fits.run.snapshot()
    assert (snapshot.state, snapshot.n_trials, snapshot.counts.complete) == ("complete", 1, 1)
    assert snapshot.rows[0].params == {"dask": "tasks"}
    last = snapshot.rows[0].metrics
    assert (last["done"], last["tasks"], last["processing"]) == (22, 22, 0)


def test_all_ways_to_submit_are_counted_and_only_those_of_the_cell(own_cluster: Any) -> None:
    import dask
    import dask.array as da
    from distributed import Client, wait

    client = jupyter_ddl.client()
    before = da.ones(4, chunks=1).persist()
    wait(before)
    with (
        Client(client.scheduler.address, security=client.security, set_as_default=False) as other,
        distributed_fits(_setting()) as fits,
    ):
        assert fits.run is None
        added = client.submit(int.__add__, 20, 22, pure=False)
        many = client.map(float, range(5))
        kept = (before + 1).persist()
        assert [added.result(), *client.gather(many)] == [42, 0, 1, 2, 3, 4]
        assert other.submit(sum, other.map(float, range(100, 130))).result() == 3435
        assert sum(dask.compute(*(dask.delayed(int)(n) for n in (30, 40)))) == 70
        wait(kept)
    assert fits.run is not None
    row = fits.run.snapshot().rows[0]
    assert row.step == row.metrics["done"] == row.metrics["tasks"] == 1 + 5 + 4 + 2
    assert row.metrics["in_memory"] >= 1 + 5 + 4  # what was computed is let go a little later
    plugins = client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.plugins))
    assert not [name for name in plugins if "jupyter_ddl" in name]
    with distributed_fits(_setting()) as fits:
        assert added.result() == 42
    assert fits.run is None


def test_stopping_the_run_ends_a_computation(own_cluster: Any, tmp_path: Path) -> None:
    from distributed import futures_of

    client = jupyter_ddl.client()
    runs: list[Run] = []

    def stop() -> None:
        until(lambda: runs and runs[0].snapshot().rows, 60, "the run has its row")
        runs[0].cancel("now")

    stopper = threading.Thread(target=stop)
    stopper.start()
    endless = _waiting(tmp_path / "never", 1)
    before = client.submit(int, 3)
    assert before.result() == 3
    held: list[Any] = []

    def work() -> None:
        held.append(endless.persist())
        _waiting(tmp_path / "never", 2).compute()

    with (
        pytest.raises(FitStoppedError, match="0 of 2 Dask tasks were done"),
        distributed_fits(_setting(on_run=runs.append)),
    ):
        work()
    stopper.join()
    (tmp_path / "never").touch()
    assert runs[0].state == "cancelled"
    assert [future.status for future in futures_of(held)] == ["cancelled"]
    assert before.result() == 3
