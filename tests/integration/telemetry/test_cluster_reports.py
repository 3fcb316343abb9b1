"""Workers of a real cluster report; a driver that hangs, is lost or missing harms nobody."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from jupyter_ddl import train
from jupyter_ddl.client.clusters import Cluster
from jupyter_ddl.client.session import session
from jupyter_ddl.protocol.cluster import ClusterSpec
from jupyter_ddl.protocol.events import AttemptStarted, Notice
from jupyter_ddl.protocol.replies import TelemetryResult
from jupyter_ddl.protocol.requests import GetTelemetry
from jupyter_ddl.protocol.telemetry import ClusterTelemetry, RankSample, WorkerSample
from jupyter_ddl.recording.lines import Measured
from jupyter_ddl.recording.write import record_run
from jupyter_ddl.store.connection import read_connection
from tests.fake_nvml import FakeNvml
from tests.leaks import Home
from tests.run_tools import start_search
from tests.until import until

pytestmark = pytest.mark.integration

LOADING = """
import time
import torch

class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 60
    def __getitem__(self, index):
        time.sleep(0.09)
        return torch.ones(4)

held = bytearray(150 << 20)
done = 0
for batch in torch.utils.data.DataLoader(Slow(), batch_size=1):
    time.sleep(0.01)
    done += 1
    report(step=done, done=done)
"""
SHORT = """
from jupyter_ddl import report, uniform
x = uniform(0.0, 1.0)
report(step=0, score=x)
"""


@pytest.fixture
def fake(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    found = FakeNvml(tmp_path)
    for name, value in found.variables().items():
        monkeypatch.setenv(name, value)
    return found


@pytest.fixture
def gpu_cluster(fake: FakeNvml) -> Iterator[Cluster]:
    """Two workers that see the fake's GPUs, and zygotes that have torch."""
    session().start(ClusterSpec(name="test", n_workers=2, prewarm=("torch",)))
    cluster = Cluster("test")
    yield cluster
    if read_connection("test") is not None:
        cluster.stop()


def picture(run_id: str = "") -> ClusterTelemetry:
    result = session().ask("test", GetTelemetry(run_id))
    assert isinstance(result, TelemetryResult)
    return msgspec.json.decode(result.telemetry.json, type=ClusterTelemetry)


def ranks_of(telemetry: ClusterTelemetry) -> list[RankSample]:
    return [rank for worker in telemetry.workers for rank in worker.ranks]


def test_a_run_s_ranks_their_loader_memory_and_hours_are_seen(gpu_cluster: Cluster) -> None:
    run = train(LOADING, 2, namespace={}, wait=False)

    def both_load() -> bool:
        ranks = ranks_of(picture(run.id))
        return len(ranks) == 2 and all((r.loader_share or 0.0) > 0.5 for r in ranks)

    until(both_load, 30.0, "two ranks that wait for their loaders")
    seen = picture(run.id)
    assert sorted(rank.rank for rank in ranks_of(seen)) == [0, 1]
    for worker in seen.workers:
        assert worker.gpu_state == ""
        assert [gpu.utilization for gpu in worker.gpus] == [0.8, 0.8]
        assert worker.memory_bytes > worker.ranks[0].memory_bytes >= 150 << 20
    status = gpu_cluster.status()
    assert status.gpus == "2 × Fake 80, 2 busy"
    assert seen.histories[0].gpu
    assert len(msgspec.json.encode(seen)) < 128_000
    run.wait()
    snapshot = run.snapshot()
    usage = snapshot.usage
    assert usage is not None
    lasted_s = snapshot.finished_at_s - snapshot.started_at_s
    assert usage.cpu_hours == pytest.approx(2 * lasted_s / 3600, rel=0.5)
    assert usage.gpu_hours == 0.0
    assert all((peak or 0) >= 150 << 20 for peak in usage.peak_memory_bytes)
    assert len(usage.peak_memory_bytes) == 2
    total = picture()
    assert total.cpu_hours == pytest.approx(usage.cpu_hours, rel=0.1)
    # Flushed four times a second: what was measured before the end is in a recording of it.
    kept = [fact.sample for fact in record_run(run.id).facts if isinstance(fact, Measured)]
    assert len(kept) >= 4
    assert {each.worker for each in kept} == {worker.worker for worker in seen.workers}
    assert all(gpu.utilization == 0.8 for each in kept for gpu in each.gpus)


def test_a_driver_that_hangs_delays_no_trial_and_no_stop(
    gpu_cluster: Cluster, fake: FakeNvml
) -> None:
    until(lambda: picture().n_workers == 2, 10.0, "samples of both workers")
    start_search(SHORT, 4).wait()
    # Longer than any test may take: what waits for the driver does not come back.
    fake.tell(gpus=2, hang_s=3600)
    until(
        lambda: {w.gpu_state for w in picture().workers} == {"n/a: NVML does not answer"},
        10.0,
        "the hang to be seen",
    )
    assert start_search(SHORT, 8).wait().snapshot().counts.complete == 8
    until(
        lambda: any("does not answer for" in text for text in picture().verdicts),
        15.0,
        "a verdict on the hang",
    )
    before_s = max(worker.at_s for worker in picture().workers)
    until(lambda: min(w.at_s for w in picture().workers) > before_s, 10.0, "samples that go on")
    fake.tell(gpus=2, utilization=50)
    until(lambda: {w.gpu_state for w in picture().workers} == {""}, 10.0, "the driver's answer")
    fake.tell(gpus=2, lost=1)
    until(
        lambda: any("is lost" in text for text in picture().verdicts), 15.0, "a verdict on the loss"
    )
    fake.tell(gpus=2, hang_s=3600)
    until(lambda: "does not answer" in gpu_cluster.status().gpus, 10.0, "the hang to be seen")
    gpu_cluster.stop()


def _who_use(worker: WorkerSample) -> list[int]:
    """The processes on a worker's GPUs; none before it has read them for the first time."""
    return [process.pid for gpu in worker.gpus for process in gpu.processes]


def test_who_else_is_on_the_gpu_of_a_trial_is_named_before_it_begins(
    gpu_cluster: Cluster, fake: FakeNvml
) -> None:
    with subprocess.Popen(["sleep", "600"]) as other:
        try:
            fake.tell(gpus=2, pid=other.pid, process_mb=9216)
            until(
                lambda: [_who_use(each) for each in picture().workers] == [[other.pid] * 2] * 2,
                10.0,
                "readings of the process on both GPUs, by both workers",
            )
            run = start_search(SHORT, 2, gpus_per_trial=1).wait()
        finally:
            other.kill()  # else a failure is told once it has slept
    told = [text for text in run.snapshot().notices if "is used by others" in text]
    assert told
    assert all(f"process {other.pid} (sleep) of " in text for text in told)
    events = run.events()
    first = next(n for n, e in enumerate(events) if isinstance(e, AttemptStarted))
    assert any(isinstance(e, Notice) and e.text in told for e in events[:first])


def test_without_a_driver_the_cluster_says_so(cluster: Cluster) -> None:
    until(lambda: picture().workers != (), 15.0, "a first sample")
    if picture().workers[0].gpus:
        pytest.skip("this host has GPUs")
    assert picture().workers[0].gpu_state.startswith("n/a: ")
    until(lambda: cluster.status().gpus.startswith("n/a: "), 5.0, "the line about GPUs")
    assert picture("no-such-run").workers == ()


def test_telemetry_can_be_switched_off(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_DDL_TELEMETRY_INTERVAL", "0")
    session().start(ClusterSpec(name="test", n_workers=1))
    cluster = Cluster("test")
    try:
        # Hours held are looked at four times a second: a trial must outlast two looks to be seen.
        lasting = f"import time\n{SHORT}\ntime.sleep(0.6)\n"
        assert start_search(lasting, 1).wait().snapshot().counts.complete == 1
        assert picture().workers == ()
        assert picture().cpu_hours > 0.0
    finally:
        cluster.stop()
