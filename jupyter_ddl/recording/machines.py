"""The machines of a recording as a view shows them: those of a cluster, without its bounds."""

from __future__ import annotations

import msgspec

from jupyter_ddl.controller.telemetry_history import History
from jupyter_ddl.controller.telemetry_store import TelemetryStore
from jupyter_ddl.events.telemetry import ClusterTelemetry, WorkerSample

__all__ = ["Machines"]


class Machines:
    """Takes samples in the order of their times; the controller's own parts draw them."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._store = TelemetryStore()
        self._histories: dict[str, History] = {}
        self._seq = 0
        self._view: ClusterTelemetry | None = None

    def add(self, sample: WorkerSample) -> None:
        """One measurement of one worker."""
        if sample.worker not in self._histories:
            self._histories[sample.worker] = History()
            self._store.keep(self._histories)
        self._store.add(msgspec.msgpack.encode(sample))
        self._histories[sample.worker].add(sample)

    def view(self, at_s: float) -> ClusterTelemetry | None:
        """What the machines did of late; None before the first measurement.

        The same object until there is something new.
        """
        if self._store.seq == self._seq:
            return self._view
        self._seq = self._store.seq
        view = self._store.view(self._run_id, at_s, cpu_hours=None, gpu_hours=None)
        shown = (sample.worker for sample in view.workers)
        histories = tuple(self._histories[name].points(name) for name in shown)
        self._view = msgspec.structs.replace(view, histories=histories)
        return self._view
