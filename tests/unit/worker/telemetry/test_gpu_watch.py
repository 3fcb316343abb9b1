"""A reading that hangs holds one thread, and nobody else."""

from __future__ import annotations

import threading

import pytest

from jupyter_ddl.protocol.telemetry import GpuSample
from jupyter_ddl.worker.telemetry.gpu_meter import NO_ANSWER, GpuReading, GpuWatch
from tests.until import until

GPU = GpuSample("GPU-0", 0, "a GPU", utilization=0.5, memory_total_bytes=100)


def n_threads() -> int:
    return sum(thread.name == "ddl-nvml" for thread in threading.enumerate())


def test_while_a_reading_hangs_no_second_one_begins() -> None:
    go_on, n_calls = threading.Event(), 0

    def read() -> GpuReading:
        nonlocal n_calls
        n_calls += 1
        if n_calls == 2:
            assert go_on.wait(30.0)
        return GpuReading("", (GPU,))

    before = n_threads()
    watch = GpuWatch(read)
    assert watch.latest(5.0).gpus == (GPU,)
    for _ in range(20):
        reading = watch.latest(0.01)
        assert reading.state == NO_ANSWER
        assert reading.gpus[0].uuid == "GPU-0"
        assert reading.gpus[0].utilization is None
        assert reading.gpus[0].memory_total_bytes == 100
    assert n_calls == 2
    assert n_threads() == before + 1
    go_on.set()
    until(lambda: watch.latest(0.5).state == "", 5.0, "an answer")
    watch.close()
    until(lambda: n_threads() == before, 5.0, "the end of the thread")


def test_a_reading_that_fails_is_told_and_the_next_one_is_made(
    caplog: pytest.LogCaptureFixture,
) -> None:
    answers: list[Exception | GpuReading] = [OSError("broken library"), GpuReading("", (GPU,))]

    def read() -> GpuReading:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    watch = GpuWatch(read)
    assert watch.latest(5.0) == GpuReading("n/a: reading failed (OSError)")
    assert watch.latest(5.0).gpus == (GPU,)
    watch.close()
    assert "broken library" in caplog.text


def test_where_there_are_no_gpus_the_thread_sleeps_until_they_are_looked_for_again() -> None:
    clock, n_calls = [0.0], 0

    def read() -> GpuReading:
        nonlocal n_calls
        n_calls += 1
        return GpuReading("", (GPU,)) if n_calls == 2 else GpuReading("n/a: none", stands_s=60.0)

    watch = GpuWatch(read, lambda: clock[0])
    for clock[0] in (0.0, 1.0, 59.0):
        assert watch.latest(5.0).state == "n/a: none"
    assert n_calls == 1
    for clock[0] in (60.0, 61.0):
        watch.latest(5.0)
    assert n_calls == 3, "one that has GPUs is asked every time"
    watch.close()
