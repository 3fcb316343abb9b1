"""The thread that samples a worker: in time, whatever happens, and never after its close."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import pairwise

import msgspec
import pytest

from jupyter_ddl.protocol.telemetry import GpuProcess, GpuSample, WorkerSample
from jupyter_ddl.worker.rank_process import RankProcess
from jupyter_ddl.worker.telemetry import worker_meter
from jupyter_ddl.worker.telemetry.gpu_meter import NO_ANSWER, GpuReading
from jupyter_ddl.worker.telemetry.worker_meter import WorkerMeter
from jupyter_ddl.worker.zygote_process import telemetry_interval_s
from tests.until import until


def decoded(sent: Sequence[bytes]) -> list[WorkerSample]:
    return [msgspec.msgpack.decode(each, type=WorkerSample) for each in sent]


def test_samples_come_at_the_interval_and_end_with_the_close() -> None:
    sent: list[bytes] = []
    meter = WorkerMeter("w0", 0.1, ranks=tuple, publish=sent.append)
    meter.start()
    until(lambda: len(sent) >= 5, 10.0, "five samples")
    meter.close()
    samples = decoded(sent)
    assert samples[0].worker == "w0"
    assert samples[0].memory_bytes > 10 << 20
    assert samples[0].cpu is None
    assert samples[-1].cpu is not None
    assert samples[-1].n_cpus >= 1
    assert samples[-1].received_bytes_s is not None
    gaps = [b.at_s - a.at_s for a, b in pairwise(samples)]
    assert min(gaps) > 0.01
    assert not any(thread.name == "ddl-telemetry" for thread in threading.enumerate())


def test_a_failure_costs_a_sample_and_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    sent: list[bytes] = []
    n_calls = 0

    def ranks() -> Sequence[RankProcess]:
        nonlocal n_calls
        n_calls += 1
        if n_calls <= 3:
            raise RuntimeError("a rank is in disorder")
        return ()

    meter = WorkerMeter("w0", 0.1, ranks=ranks, publish=sent.append)
    meter.start()
    until(lambda: sent, 10.0, "a sample")
    meter.close()
    assert [record.message for record in caplog.records] == ["worker w0: taking a sample failed"]


class _SlowDriver:
    """Tells of a GPU until it is to hang, and then nothing until it is let go."""

    def __init__(self) -> None:
        self.hangs = threading.Event()
        self.let_go = threading.Event()
        self.told = GpuReading(gpus=(GpuSample("GPU-0", 0, "Fake", processes=(GpuProcess(7),)),))

    def read(self) -> GpuReading:
        if self.hangs.is_set():
            self.let_go.wait()
        return self.told


def test_who_was_seen_on_a_gpu_stays_known_while_its_driver_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = _SlowDriver()
    monkeypatch.setattr(worker_meter, "GpuReader", lambda _: driver)
    sent: list[bytes] = []
    meter = WorkerMeter("w0", 0.1, ranks=tuple, publish=sent.append)
    meter.start()
    until(lambda: meter.gpus == driver.told.gpus, 10.0, "a reading")
    driver.hangs.set()
    until(lambda: sent and decoded(sent)[-1].gpu_state == NO_ANSWER, 10.0, "the hang")
    assert meter.gpus == driver.told.gpus
    driver.let_go.set()
    meter.close()


def test_the_limit_of_memory_is_that_of_the_worker_s_slots() -> None:
    sent: list[bytes] = []
    meter = WorkerMeter(
        "w0", 0.1, ranks=tuple, publish=sent.append, rank_memory_bytes=1 << 30, n_slots=2
    )
    meter.start()
    until(lambda: sent, 10.0, "a sample")
    meter.close()
    assert decoded(sent)[0].memory_limit_bytes == 2 << 30


@pytest.mark.parametrize(
    ("text", "expected_s"),
    [
        (None, 1.0),
        ("5", 5.0),
        ("0", 0.0),
        ("-1", 0.0),
        ("0.001", 0.1),
        ("often", 1.0),
        ("nan", 1.0),
    ],
)
def test_the_interval_stands_in_the_environment(text: str | None, expected_s: float) -> None:
    environ = {} if text is None else {"JUPYTER_DDL_TELEMETRY_INTERVAL": text}
    assert telemetry_interval_s(environ) == expected_s
