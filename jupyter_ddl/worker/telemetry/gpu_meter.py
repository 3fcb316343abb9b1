"""Asks for GPU readings in a thread that may hang, so that nobody else does."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pynvml

from jupyter_ddl.protocol.telemetry import GpuProcess, GpuSample
from jupyter_ddl.store.nvml import Gpu, GpuInventory, ask, handle_of, inventory, reason

__all__ = ["NO_ANSWER", "GpuReader", "GpuReading", "GpuWatch"]


# Reads all GPUs of this process once.  Blocking, and a driver in trouble may hold it for minutes.
#
# NVML stays open between readings; after an error of the library itself it is opened again.

_LIST_INTERVAL_S = 60.0
"""GPUs come and go (MIG, a driver that is loaded later), but seldom."""
_MAX_GPUS = 64
_MAX_PROCESSES = 16


class GpuReading(msgspec.Struct, frozen=True):
    """``state`` is empty, or says why there is nothing to read."""

    state: str = ""
    gpus: tuple[GpuSample, ...] = ()
    stands_s: float = 0.0
    """For so long the next reading would say the same."""


class GpuReader:
    """Used on one thread.

    Parameters
    ----------
    environ : mapping
        Where ``CUDA_VISIBLE_DEVICES`` is looked up.
    """

    def __init__(
        self, environ: Mapping[str, str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._environ = environ
        self._clock = clock
        self._found = GpuInventory()
        self._listed_at_s: float | None = None
        self._is_open = False

    def read(self) -> GpuReading:
        """All GPUs as they are now; what one of them does not tell is None."""
        now_s = self._clock()
        if self._listed_at_s is None or now_s - self._listed_at_s >= _LIST_INTERVAL_S:
            self._list(now_s)
        if not self._found.gpus:
            return GpuReading(self._found.state, stands_s=_LIST_INTERVAL_S)
        return GpuReading("", tuple(map(_sample, self._found.gpus[:_MAX_GPUS])))

    def close(self) -> None:
        """Let go of NVML."""
        if self._is_open:
            self._is_open = False
            ask(pynvml.nvmlShutdown)

    def _list(self, now_s: float) -> None:
        self._listed_at_s = now_s
        if not self._is_open:
            # Held open, so that the library does not start over with every list.
            self._is_open = ask(_init) is not None
        found = inventory(self._environ)
        # One that is lost is listed no longer; it stays in the picture, and says so.
        known = {gpu.uuid for gpu in found.gpus}
        gone = [gpu for gpu in self._found.gpus if gpu.uuid not in known]
        lost = gone if found.unreadable else []
        self._found = msgspec.structs.replace(found, gpus=(*found.gpus, *lost))


def _init() -> bool:
    pynvml.nvmlInit()
    return True


def _sample(gpu: Gpu) -> GpuSample:
    known = GpuSample(
        gpu.uuid,
        gpu.index,
        gpu.name,
        memory_total_bytes=gpu.memory_total_bytes,
        parent_uuid=gpu.parent_uuid,
    )
    try:
        handle = handle_of(gpu.uuid)
        memory: Any = pynvml.nvmlDeviceGetMemoryInfo(handle)
    except pynvml.NVMLError as error:
        return msgspec.structs.replace(known, state=reason(error))
    # Of the whole GPU; an instance has no sensors of its own.
    board = handle if not gpu.parent_uuid else ask(handle_of, gpu.parent_uuid)
    rates: Any = None if gpu.parent_uuid else ask(pynvml.nvmlDeviceGetUtilizationRates, handle)
    power = ask(pynvml.nvmlDeviceGetPowerUsage, board)
    return msgspec.structs.replace(
        known,
        utilization=None if rates is None else rates.gpu / 100,
        memory_used_bytes=int(memory.used),
        memory_total_bytes=int(memory.total),
        power_w=None if power is None else power / 1000,
        temperature_c=_float(
            ask(pynvml.nvmlDeviceGetTemperature, board, pynvml.NVML_TEMPERATURE_GPU)
        ),
        sm_clock_mhz=_float(ask(pynvml.nvmlDeviceGetClockInfo, board, pynvml.NVML_CLOCK_SM)),
        processes=_processes(handle),
    )


def _processes(handle: Any) -> tuple[GpuProcess, ...]:
    running: Any = ask(pynvml.nvmlDeviceGetComputeRunningProcesses, handle) or ()
    return tuple(GpuProcess(int(p.pid), p.usedGpuMemory) for p in running[:_MAX_PROCESSES])


def _float(value: int | None) -> float | None:
    return None if value is None else float(value)


log = logging.getLogger(__name__)

NO_ANSWER = "n/a: NVML does not answer"


class GpuWatch:
    """One reading at a time, in one thread: while a call hangs, no second one is made."""

    def __init__(
        self, read: Callable[[], GpuReading], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._read = read
        self._clock = clock
        self._stands_until_s = clock()
        self._wanted = threading.Event()
        self._ready = threading.Event()
        self._closed = False
        self._last = GpuReading("n/a: not read yet")
        self._known = GpuReading()
        threading.Thread(target=self._run, name="ddl-nvml", daemon=True).start()

    def latest(self, timeout_s: float) -> GpuReading:
        """A new reading; when none comes in time, what is known of the GPUs, and that it hangs.

        Where there are no GPUs the thread is left asleep: waking it would cost more than all that
        it finds out.
        """
        if self._clock() < self._stands_until_s:
            return self._last
        self._ready.clear()
        self._wanted.set()
        if self._ready.wait(timeout_s):
            self._known = self._last
            self._stands_until_s = self._clock() + self._last.stands_s
            return self._last
        gpus = (msgspec.structs.replace(gpu, **_UNKNOWN) for gpu in self._known.gpus)
        return GpuReading(NO_ANSWER, tuple(gpus))

    def close(self) -> None:
        """The thread ends with its current reading, whenever that is."""
        self._closed = True
        self._wanted.set()

    def _run(self) -> None:
        while True:
            self._wanted.wait()
            if self._closed:
                return
            self._wanted.clear()
            try:
                self._last = self._read()
            except Exception as error:  # noqa: BLE001 - a driver's library may do anything
                log.warning("reading GPUs failed: %r", error)
                self._last = GpuReading(f"n/a: reading failed ({type(error).__name__})")
            self._ready.set()


_UNKNOWN = {
    "utilization": None,
    "memory_used_bytes": None,
    "power_w": None,
    "temperature_c": None,
    "sm_clock_mhz": None,
    "processes": (),
    "state": "does not answer",
}
