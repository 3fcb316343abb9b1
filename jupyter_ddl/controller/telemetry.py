"""Telemetry of one cluster: samples of its workers in, pictures for views and hours held out."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Collection, Iterable

from distributed import Client

from jupyter_ddl.controller.telemetry_record import TelemetryRecord
from jupyter_ddl.controller.telemetry_store import TelemetryStore
from jupyter_ddl.controller.usage import UsageMeter
from jupyter_ddl.events.telemetry import ClusterTelemetry, Usage, WorkerSample
from jupyter_ddl.launch.topics import hear
from jupyter_ddl.placement.slots import SlotBook

__all__ = ["Telemetry", "gpu_line"]

_LOOK_INTERVAL_S = 0.25
"""Hours held are exact to about this time a slot."""
_FLUSH_INTERVAL_S = 2.0
"""Samples for recordings wait for so long: a write for each would cost more than the sample."""
_BUSY = 0.05


class Telemetry:
    """Used on the controller's loop only.  What gets lost on the way is not asked for again."""

    def __init__(self, client: Client, topic: str, slots: SlotBook, cpus_per_slot: int) -> None:
        self._client = client
        self._topic = topic
        self._slots = slots
        self._store = TelemetryStore()
        self._record = TelemetryRecord()
        self._meter = UsageMeter(cpus_per_slot, time.monotonic())
        self._looking: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Subscribe to the workers' samples; call once."""
        self.reconnect(self._client)
        self._looking = asyncio.create_task(self._look_on(), name="look at usage")

    def reconnect(self, client: Client) -> None:
        """Go on with another scheduler."""
        self._client = client
        hear(client, self._topic, self._on_message)

    async def close(self) -> None:
        """Stop adding up; the client's end ends the subscription."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        await self._record.flush()

    def keep(self, workers: Collection[str]) -> None:
        """The cluster has these workers now, by name."""
        self._store.keep(workers)

    def view(self, run_id: str = "") -> ClusterTelemetry:
        """The picture of the cluster, or of the workers that execute a run."""
        self._look()
        if run_id:
            usage = self._meter.of(run_id)
            hours = (None, None) if usage is None else (usage.cpu_hours, usage.gpu_hours)
        else:
            hours = self._meter.total()
        return self._store.view(run_id, time.time(), cpu_hours=hours[0], gpu_hours=hours[1])

    def usage(self, run_id: str) -> Usage | None:
        """What a run has held until now."""
        self._look()
        return self._meter.of(run_id)

    def gpu_line(self) -> str:
        """The cluster's GPUs in a few words."""
        return gpu_line(self._store.samples()) or self._slots.gpus.why_none()

    def _on_message(self, encoded: bytes) -> None:
        sample = self._store.add(encoded)
        if sample is not None:
            self._meter.see(sample.ranks)
            self._record.see(sample)

    async def _look_on(self) -> None:
        flushed_at_s = time.monotonic()
        while True:
            self._look()
            if time.monotonic() - flushed_at_s >= _FLUSH_INTERVAL_S:
                await self._record.flush()
                flushed_at_s = time.monotonic()
            await asyncio.sleep(_LOOK_INTERVAL_S)

    def _look(self) -> None:
        slots = self._slots
        self._meter.look(time.monotonic(), slots.holders(), slots.gpus.holders())


def gpu_line(samples: Iterable[WorkerSample]) -> str:
    """``2 × NVIDIA A100, 1 busy``, or why there are none; empty when no worker has told yet."""
    samples = tuple(samples)
    gpus = {gpu.uuid: gpu for sample in samples for gpu in sample.gpus}
    states = Counter(sample.gpu_state for sample in samples if sample.gpu_state)
    trouble = [f"{n} workers: {state}" if n > 1 else state for state, n in states.most_common(2)]
    if not gpus:
        return states.most_common(1)[0][0] if states else ""
    names = Counter(gpu.name for gpu in gpus.values())
    n_busy = sum((gpu.utilization or 0.0) > _BUSY for gpu in gpus.values())
    lost = [f"GPU {gpu.index} {gpu.state}" for gpu in gpus.values() if gpu.state]
    counted = [f"{n} × {name}" for name, n in names.most_common(3)]
    return ", ".join([*counted, f"{n_busy} busy", *lost[:4], *trouble])
