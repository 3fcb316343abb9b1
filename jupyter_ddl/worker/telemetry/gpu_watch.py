"""Asks for GPU readings in a thread that may hang, so that nobody else does."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

import msgspec

from jupyter_ddl.worker.telemetry.gpu_reader import GpuReading

__all__ = ["NO_ANSWER", "GpuWatch"]

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
