"""Telemetry of one cluster: samples of its workers in, pictures for views and hours held out."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping

from distributed import Client

from jupyter_ddl.controller.telemetry_store import TelemetryRecord, TelemetryStore
from jupyter_ddl.driving.calls import hear
from jupyter_ddl.placement.slots import SlotBook
from jupyter_ddl.protocol.prices import Held, Reading, Tariff
from jupyter_ddl.protocol.telemetry import ClusterTelemetry, RankSample, Usage, WorkerSample

__all__ = ["Telemetry", "UsageMeter", "gpu_line"]


# CPU-hours and GPU-hours that runs have held so far, and their ranks' peaks of memory.  Pure.

_N_REMEMBERED = 200
_N_RANKS = 64
_HOUR_S = 3600.0


class _Account:
    __slots__ = ("gpu_s", "peaks", "slot_s")

    def __init__(self) -> None:
        self.slot_s = 0.0
        self.gpu_s: defaultdict[str, float] = defaultdict(float)
        """By name of the GPUs."""
        self.peaks: dict[int, int] = {}


class UsageMeter:
    """Adds up what is held between looks.

    Parameters
    ----------
    cpus_per_slot : int
        CPUs that a run holds with each slot.
    """

    def __init__(self, cpus_per_slot: int, now_s: float) -> None:
        self._cpus_per_slot = cpus_per_slot
        self._looked_at_s = now_s
        self._slots: Mapping[str, int] = {}
        self._gpus: Mapping[str, Mapping[str, int]] = {}
        self._accounts: OrderedDict[str, _Account] = OrderedDict()
        self._forgotten = _Account()

    def poll(
        self, now_s: float, slots: Mapping[str, int], gpus: Mapping[str, Mapping[str, int]]
    ) -> None:
        """Charge the time since the last look for what was held then, and note what is held now.

        Parameters
        ----------
        now_s : float
            Monotonic seconds.
        slots : mapping
            Run id → number held.
        gpus : mapping
            The same, by name of the GPUs.
        """
        passed_s = max(0.0, now_s - self._looked_at_s)
        self._looked_at_s = now_s
        for run_id, n_slots in self._slots.items():
            self._account(run_id).slot_s += n_slots * passed_s
        for run_id, kinds in self._gpus.items():
            for name, n_gpus in kinds.items():
                self._account(run_id).gpu_s[name] += n_gpus * passed_s
        self._slots, self._gpus = dict(slots), dict(gpus)

    def observe(self, ranks: Iterable[RankSample]) -> None:
        """Remember peaks of memory."""
        for rank in ranks:
            if rank.memory_bytes is not None and rank.rank < _N_RANKS:
                peaks = self._account(rank.run_id).peaks
                peaks[rank.rank] = max(rank.memory_bytes, peaks.get(rank.rank, 0))

    def of(self, run_id: str) -> Usage | None:
        """What a run has held up to the last look; None: nothing is known of it."""
        account = self._accounts.get(run_id)
        if account is None:
            return None
        peaks = account.peaks
        return Usage(
            cpu_hours=self._cpu_hours(account),
            gpu_hours=sum(account.gpu_s.values()) / _HOUR_S,
            peak_memory_bytes=tuple(peaks.get(rank) for rank in range(max(peaks, default=-1) + 1)),
        )

    def read(self, run_id: str, tariff: Tariff | None) -> Reading:
        """What a run has held up to the last look and what it holds now, by a tariff if any."""
        account = self._accounts.get(run_id) or _Account()
        gpu_hours = {name: gpu_s / _HOUR_S for name, gpu_s in account.gpu_s.items()}
        held = self._held(account.slot_s / _HOUR_S, gpu_hours, tariff)
        now = self._held(self._slots.get(run_id, 0), self._gpus.get(run_id, {}), tariff)
        return Reading(held, now)

    def _held(
        self, slot_hours: float, gpu_hours: Mapping[str, float], tariff: Tariff | None
    ) -> Held:
        return Held(
            slot_hours * self._cpus_per_slot,
            sum(gpu_hours.values()),
            None if tariff is None else tariff.amount(slot_hours, gpu_hours),
        )

    def total(self) -> tuple[float, float]:
        """CPU-hours and GPU-hours of all runs of this controller."""
        accounts = [self._forgotten, *self._accounts.values()]
        gpu_s = sum(sum(account.gpu_s.values()) for account in accounts)
        return sum(map(self._cpu_hours, accounts)), gpu_s / _HOUR_S

    def _cpu_hours(self, account: _Account) -> float:
        return account.slot_s * self._cpus_per_slot / _HOUR_S

    def _account(self, run_id: str) -> _Account:
        account = self._accounts.get(run_id)
        if account is None:
            account = self._accounts[run_id] = _Account()
            idle = [known for known in self._accounts if known not in self._slots]
            for known in idle[: len(self._accounts) - _N_REMEMBERED]:
                self._forget(known)
        return account

    def _forget(self, run_id: str) -> None:
        account = self._accounts.pop(run_id, None)
        if account is not None:
            self._forgotten.slot_s += account.slot_s
            for name, gpu_s in account.gpu_s.items():
                self._forgotten.gpu_s[name] += gpu_s


_LOOK_INTERVAL_S = 0.25
"""Hours held are exact to about this time a slot."""
_FLUSH_INTERVAL_S = 2.0
"""Samples for recordings wait for so long: a write for each would cost more than the sample."""
_BUSY = 0.05


class Telemetry:
    """Used on the controller's loop only.  What gets lost on the way is not asked for again."""

    def __init__(
        self,
        client: Client,
        topic: str,
        slots: SlotBook,
        cpus_per_slot: int,
        on_heard: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._client = client
        self._on_heard = on_heard
        self._topic = topic
        self._slots = slots
        self._store = TelemetryStore()
        self._record = TelemetryRecord()
        self._meter = UsageMeter(cpus_per_slot, time.monotonic())
        self._looking: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Subscribe to the workers' samples; call once."""
        self.reconnect(self._client)
        self._looking = asyncio.create_task(self._keep_polling(), name="look at usage")

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
        self._poll()
        if run_id:
            usage = self._meter.of(run_id)
            hours = (None, None) if usage is None else (usage.cpu_hours, usage.gpu_hours)
        else:
            hours = self._meter.total()
        return self._store.view(run_id, time.time(), cpu_hours=hours[0], gpu_hours=hours[1])

    def usage(self, run_id: str) -> Usage | None:
        """What a run has held until now."""
        self._poll()
        return self._meter.of(run_id)

    def read(self, run_id: str, tariff: Tariff | None) -> Reading:
        """What a run has held until now and holds now, and what that costs by a tariff."""
        self._poll()
        return self._meter.read(run_id, tariff)

    def gpu_line(self) -> str:
        """The cluster's GPUs in a few words."""
        return gpu_line(self._store.samples()) or self._slots.gpus.why_none()

    def _on_message(self, encoded: bytes) -> None:
        sample = self._store.add(encoded)
        if sample is not None:
            self._on_heard(sample.worker)
            self._meter.observe(sample.ranks)
            self._record.observe(sample)

    async def _keep_polling(self) -> None:
        flushed_at_s = time.monotonic()
        while True:
            self._poll()
            if time.monotonic() - flushed_at_s >= _FLUSH_INTERVAL_S:
                await self._record.flush()
                flushed_at_s = time.monotonic()
            await asyncio.sleep(_LOOK_INTERVAL_S)

    def _poll(self) -> None:
        slots = self._slots
        self._meter.poll(time.monotonic(), slots.holders(), slots.gpus.kinds_held())


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
