"""Takes a sample of the worker once a second, in a thread of its own.

It may fail, and what it asks may hang, without harm to the worker: the worker's loop only sends
what it is given.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import platform
import threading
import time
from collections.abc import Callable, Sequence

import msgspec

from jupyter_ddl.protocol.telemetry import GpuSample, RankSample, WorkerSample
from jupyter_ddl.store.host_limits import host_limits
from jupyter_ddl.worker.rank_process import RankProcess
from jupyter_ddl.worker.telemetry.gpu_meter import NO_ANSWER, GpuReader, GpuWatch
from jupyter_ddl.worker.telemetry.process_meter import NetworkMeter, ProcessMeter, TreeUse

__all__ = ["SamplePost", "WorkerMeter"]


# Sends samples from the worker's loop when that sends chunks of events anyway.

_PATIENCE_S = 0.01
"""A chunk that is due at the same time is sent within it."""


class SamplePost:
    """Sends the newest sample at whole multiples of the interval, on the loop's own clock.

    Chunks of events keep to whole seconds as well (``worker/chunks.py``).  A sample that goes with
    one costs neither the worker nor the controller a wake-up and a message of its own, and these
    are most of what it costs.

    Parameters
    ----------
    send : callable
        Called on the loop.
    """

    def __init__(self, interval_s: float, send: Callable[[bytes], None]) -> None:
        self._interval_s = interval_s
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._sample: bytes | None = None
        self._due_s = 0.0
        self._timer: asyncio.Handle = self._loop.call_soon(self._wait)

    def put(self, sample: bytes) -> None:
        """Take a sample, from any thread; one that has not been sent yet is dropped for it."""
        self._sample = sample

    def go_along(self) -> None:
        """Something else is being sent: send a sample that is due about now."""
        if self._sample is not None and self._loop.time() >= self._due_s - _PATIENCE_S:
            self._post()

    def close(self) -> None:
        """Send nothing any more."""
        self._timer.cancel()

    def _wait(self) -> None:
        now_s = self._loop.time()
        self._due_s = (math.floor(now_s / self._interval_s) + 1) * self._interval_s
        self._timer = self._loop.call_at(self._due_s + _PATIENCE_S, self._on_time)

    def _on_time(self) -> None:
        self._post()
        self._wait()

    def _post(self) -> None:
        sample, self._sample = self._sample, None
        if sample is not None:
            self._send(sample)


log = logging.getLogger(__name__)

_GPU_TIMEOUT_S = 0.5
_CLOSE_TIMEOUT_S = 1.0
_SPARE_S = 0.02
_MAX_RANKS = 64


class WorkerMeter:
    """Samples one worker from ``start`` to ``close``.

    Parameters
    ----------
    worker : str
        Its name.
    ranks : callable
        The worker's ranks as of now; called in the meter's thread.
    publish : callable
        Gets every encoded sample, in the meter's thread; must not wait.
    zygotes : callable
        Pids of the worker's zygotes as of now, which may be no children of it; called as ``ranks``.
    rank_memory_bytes : int, optional
        What the process tree of one rank may hold.
    n_slots : int
        Ranks that may be busy at once.
    """

    def __init__(
        self,
        worker: str,
        interval_s: float,
        *,
        ranks: Callable[[], Sequence[RankProcess]],
        publish: Callable[[bytes], None],
        zygotes: Callable[[], Sequence[int]] = tuple,
        rank_memory_bytes: int | None = None,
        n_slots: int = 1,
    ) -> None:
        self._worker = worker
        self._interval_s = interval_s
        self._ranks = ranks
        self._publish = publish
        self._zygotes = zygotes
        self._rank_memory_bytes = rank_memory_bytes
        self._n_slots = n_slots
        self.gpus: tuple[GpuSample, ...] = ()
        """As they were read last: a driver that is slow for a moment takes nothing away."""
        """As they were read last."""
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ddl-telemetry", daemon=True)

    def start(self) -> None:
        """Begin; the first sample comes at once, rates with the second one."""
        self._thread.start()

    def close(self) -> None:
        """No sample is published afterwards, unless a call to the system hangs for longer."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join(_CLOSE_TIMEOUT_S)

    def _run(self) -> None:
        gpus = GpuWatch(GpuReader(os.environ).read)
        limits = host_limits()
        processes, network = ProcessMeter(os.getpid()), NetworkMeter()
        limit_bytes = limits.memory_bytes
        if self._rank_memory_bytes is not None:
            limit_bytes = min(limit_bytes, self._rank_memory_bytes * self._n_slots)
        complained = False
        due_s = time.monotonic()
        while not self._closed.wait(max(0.0, due_s - time.monotonic())):
            began_s = time.monotonic()
            try:
                sample = self._sample(gpus, processes, network, limits.cpus, limit_bytes)
                if not self._closed.is_set():
                    self._publish(msgspec.msgpack.encode(sample))
            except Exception:  # the wall of this thread: a sample less, and no harm
                if not complained:
                    log.exception("worker %s: taking a sample failed", self._worker)
                complained = True
            due_s = _due_s(self._interval_s, began_s, time.monotonic())
        gpus.close()

    def _sample(
        self,
        gpus: GpuWatch,
        processes: ProcessMeter,
        network: NetworkMeter,
        n_cpus: int,
        limit_bytes: int,
    ) -> WorkerSample:
        ranks = [rank for rank in self._ranks() if rank.pid][:_MAX_RANKS]
        own = os.getpid()
        used = processes.poll(
            {own: limit_bytes, **{rank.pid: self._rank_memory_bytes for rank in ranks}},
            self._zygotes(),
        )
        all_used = used.get(own, TreeUse())
        received, sent = network.poll()
        reading = gpus.latest(min(_GPU_TIMEOUT_S, self._interval_s / 2))
        if reading.state != NO_ANSWER:
            self.gpus = reading.gpus
        return WorkerSample(
            self._worker,
            platform.node(),
            round(time.time(), 2),
            cpu=all_used.cpu,
            n_cpus=n_cpus,
            memory_bytes=all_used.memory_bytes,
            memory_limit_bytes=limit_bytes,
            read_bytes_s=all_used.read_bytes_s,
            write_bytes_s=all_used.write_bytes_s,
            received_bytes_s=received,
            sent_bytes_s=sent,
            gpu_state=reading.state,
            gpus=reading.gpus,
            ranks=tuple(_rank_sample(rank, used.get(rank.pid, TreeUse())) for rank in ranks),
        )


def _due_s(interval_s: float, began_s: float, now_s: float) -> float:
    """When to begin the next sample: so that it is there at a whole multiple of the interval.

    Samples are sent then (:class:`SamplePost`).  Late ones are left out rather than caught up with.
    """
    lead_s = min(now_s - began_s + _SPARE_S, interval_s / 2)
    next_s = (math.floor(now_s / interval_s) + 1) * interval_s
    if next_s - began_s < interval_s / 2 + lead_s:  # the sample just taken is for that time
        next_s += interval_s
    return next_s - lead_s


def _rank_sample(rank: RankProcess, used: TreeUse) -> RankSample:
    place = rank.place
    return RankSample(
        rank.run_id,
        rank.trial,
        0 if place is None else place.rank,
        rank.pid,
        cpu=used.cpu,
        memory_bytes=used.memory_bytes,
        read_bytes_s=used.read_bytes_s,
        write_bytes_s=used.write_bytes_s,
        loader_share=rank.loader_share if rank.is_busy else None,
        gpus=rank.gpus,
        is_busy=rank.is_busy,
    )
