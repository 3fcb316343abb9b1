"""What a controller serves: backend, workers, slots, runs and its lease."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable

import msgspec
from distributed import Client

from jupyter_ddl.backends.base import Backend, make_backend
from jupyter_ddl.controller.cluster_size import ClusterSize
from jupyter_ddl.controller.environment import KeptPackages, WorkerEnvironments
from jupyter_ddl.controller.files import WrittenFiles
from jupyter_ddl.controller.groups import GroupRegistry
from jupyter_ddl.controller.log_care import LogCare
from jupyter_ddl.controller.runs import RunRegistry
from jupyter_ddl.controller.silence import WorkerSilence, text_of_silence
from jupyter_ddl.controller.telemetry import Telemetry
from jupyter_ddl.driving.dispatcher import Dispatcher
from jupyter_ddl.driving.file_sync import FileTransfer
from jupyter_ddl.driving.rank_calls import RankCalls
from jupyter_ddl.driving.workers import WorkerInfo, WorkerWatch
from jupyter_ddl.errors import ClusterError
from jupyter_ddl.formats import format_duration
from jupyter_ddl.placement.slots import SlotBook
from jupyter_ddl.protocol.cluster import ClusterSpec
from jupyter_ddl.protocol.group import SeenGpus
from jupyter_ddl.protocol.prices import Place, Reading, tariff_of
from jupyter_ddl.protocol.replies import ClusterState, ClusterStatus, WorkerStatus
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.store.awake import AwakeLoop, awake_s
from jupyter_ddl.worker.plugin import RankPlugin
from jupyter_ddl.worker.zygote_process import WorkerSettings, telemetry_interval_s

__all__ = ["ClusterService", "Lease"]


# When a controller ends by itself.  Pure; times are seconds of one monotonic clock, without those
# in which the controller stood still.


class Lease(msgspec.Struct):
    """Idle timeout and maximum age of one cluster."""

    started_s: float
    idle_timeout_s: float
    max_age_s: float
    last_active_s: float
    """When a run was last active or a client last asked for more than how it is."""

    def begin(self, now_s: float, age_s: float = 0.0) -> None:
        """The cluster is ready: its time starts now, unless it is older than its controller."""
        self.started_s, self.last_active_s = now_s - age_s, now_s

    def touch(self, now_s: float) -> None:
        """A client asked for something, or a run is active."""
        self.last_active_s = max(self.last_active_s, now_s)

    def idle_left_s(self, now_s: float, n_active_runs: int) -> float | None:
        """Seconds until the idle timeout; None while a run is active."""
        if n_active_runs:
            return None
        return max(0.0, self.last_active_s + self.idle_timeout_s - now_s)

    def age_left_s(self, now_s: float) -> float:
        return max(0.0, self.started_s + self.max_age_s - now_s)

    def expired(self, now_s: float, n_active_runs: int) -> str | None:
        """Why the cluster is to end now, or None."""
        if self.age_left_s(now_s) <= 0:
            return f"its maximum age of {self.max_age_s:.0f} s is reached"
        if self.idle_left_s(now_s, n_active_runs) == 0:
            return f"it has been idle for {self.idle_timeout_s:.0f} s"
        return None


log = logging.getLogger(__name__)

_CANCEL_AGAIN_S = 0.5
_KEEP_SIZE_INTERVAL_S = 1.0
_LEASE_SHARE = 2.0
"""Of the time after which a silent worker is gone: one that beats may answer so late."""
_LEAVE_TIMEOUT_S = 8.0


class ClusterService:
    """Made, used and closed on the controller's loop."""

    runs: RunRegistry
    groups: GroupRegistry
    telemetry: Telemetry
    written: WrittenFiles

    def __init__(self, spec: ClusterSpec, token: str, backend: Backend | None = None) -> None:
        self.spec = spec
        self._token = token
        self.backend = backend or make_backend(spec)
        self.slots = SlotBook()
        now = awake_s()
        self.lease = Lease(now, spec.idle_timeout_s, spec.max_age_s, now)
        self.state: ClusterState = "starting"
        self._started_at_s = time.time()
        self._workers: dict[str, WorkerInfo] = {}
        self.size = ClusterSize(
            spec,
            self.backend,
            self.slots,
            demand_slots=lambda: self.runs.demand_slots(),
            on_scaled=lambda: self.runs.wake(),
        )
        self._size_keeper: asyncio.Task[None] | None = None
        self._leaves_runs = False
        self.environment = WorkerEnvironments(
            lambda: self.backend.client,
            lambda: self._workers,
            lambda: self._workers_changed(self._workers),
            kept=KeptPackages(spec, self.backend.packages_from),
            apart=not self.backend.shared_filesystem,
        )

    async def open(self, on_phase: Callable[[str], None]) -> None:
        """Start the backend and everything that stands on it; deadline: the backend's own."""
        await self.backend.start(on_phase)
        on_phase("preparing ranks")
        topic = f"jupyter-ddl-{self._token}"
        settings = WorkerSettings(
            owner_token=self._token,
            cpus_per_slot=self.spec.cpus_per_worker,
            prewarm=self.spec.prewarm,
            shares_files=self.backend.shared_filesystem,
            keeps_http=not self.backend.owns_workers,
            rank_memory_bytes=self.spec.memory_per_worker_bytes,
            telemetry_topic=f"{topic}-telemetry",
            telemetry_interval_s=telemetry_interval_s(os.environ),
        )
        client = self.backend.client
        self._client: Client | None = client
        self._comm = client.scheduler_comm
        self._plugin = RankPlugin(settings)
        await self._enter_workers(client)
        transfer = self._transfer = (
            None if settings.shares_files else FileTransfer(client, self._name_of)
        )
        self.written = WrittenFiles(transfer, lambda: self._workers)
        self._calls = RankCalls(client, transfer)
        dispatcher = self._dispatcher = Dispatcher(
            client,
            topic,
            transfer,
            is_there=lambda worker: worker in self._workers,
            owns_workers=self.backend.owns_workers,
        )
        self._silence = WorkerSilence(settings.telemetry_interval_s)
        self.telemetry = Telemetry(
            self.backend.client,
            settings.telemetry_topic,
            self.slots,
            self.spec.cpus_per_worker,
            on_heard=lambda worker: self._silence.heard(worker, awake_s()),
        )
        self.runs = RunRegistry(
            self.spec.name,
            self.slots,
            dispatcher,
            host_of=self._host_of,
            n_wanted=self.size.n_wanted_slots,
            n_possible=self.size.n_possible_slots,
            gpus_known=self._gpus_known,
            usage=self.telemetry.usage,
            meter=self._meter,
            image=lambda: self.backend.image,
            attempt_lease_s=_LEASE_SHARE * self.spec.worker_timeout_s,
            has_event_files=self.backend.has_clients_here,
        )
        self.groups = GroupRegistry(
            self.slots,
            self._calls,
            host_of=self._host_of,
            on_free=self.runs.wake,
            gpus_known=self._gpus_known,
        )
        self._log_care = LogCare(lambda: (*self.runs.active, *self.groups.active), self._tell_run)
        dispatcher.start()
        self.telemetry.start()
        self._watch = WorkerWatch(
            self.backend.client, self._workers_changed, dispatcher.worker_removed
        )
        if packages := await self.environment.recall():
            on_phase(f"giving workers {', '.join(packages)} again")
        await self._watch.start()
        self._size_keeper = asyncio.create_task(self._keep_size(), name="keep size")
        self.lease.begin(awake_s(), self.backend.age_s)  # starting took its time, too
        self._started_at_s -= self.backend.age_s
        self.state = "ready"

    async def settle(self) -> None:
        """Drive nothing any more; unfinished runs stay resumable."""
        self._leaves_runs = bool(self.runs.active)
        await self.groups.close()
        await self.runs.close()

    async def close(self, why: str = "") -> None:
        """End the cluster.

        Parameters
        ----------
        why : str
            Stands in the records of its groups, and of runs that are left unfinished.
        """
        if self.state == "ready" and not (self._leaves_runs or self.runs.active):
            self.environment.forget()
        if why and hasattr(self, "runs"):
            name = self.spec.name
            await self.runs.tell_last(
                f"cluster {name} ended: {why}; its next one goes on with this run"
            )
        await self._end_work(why)
        await self.backend.close()

    async def leave(self) -> None:
        """End, where another controller may take this one's place: the backend knows."""
        await self._end_work()
        await self.backend.leave()

    async def _end_work(self, why: str = "") -> None:
        self.state = "stopping"
        keeper = self._size_keeper
        while keeper is not None and not keeper.done():
            # Again and again: a client of Dask's that closes takes one for its own.
            keeper.cancel()
            await asyncio.wait([keeper], timeout=_CANCEL_AGAIN_S)
        if hasattr(self, "_watch"):
            await self._watch.close()
        if hasattr(self, "_log_care"):
            await self._log_care.close()
        if hasattr(self, "groups"):
            await self.groups.close(why)
        if hasattr(self, "runs"):
            await self.runs.close()
        if hasattr(self, "telemetry"):
            await self.telemetry.close()
        await self.environment.close()
        if hasattr(self, "_plugin") and not self.backend.owns_workers:
            await self._leave_workers()

    async def _enter_workers(self, client: Client) -> None:
        try:
            await client.register_plugin(self._plugin)
        except Exception as error:  # whatever the plugin's setup raises on a worker
            raise ClusterError(
                f"the workers of cluster {self.spec.name} refuse jupyter_ddl's plugin: "
                f"{str(error) or repr(error)}; see `%cluster logs`"
            ) from error

    async def _leave_workers(self) -> None:
        """Take the plugin, and every process below it, from workers that go on without us."""
        try:
            async with asyncio.timeout(_LEAVE_TIMEOUT_S):
                await self.backend.client.unregister_worker_plugin(self._plugin.name)
        except Exception:  # a worker's, too: nothing may hinder the end
            log.exception("the workers were left with the plugin")

    def status(self) -> ClusterStatus:
        now = awake_s()
        trouble = ""
        if self.state == "ready":
            trouble = self.backend.trouble or text_of_silence(self._silence.silent(now))
        return ClusterStatus(
            name=self.spec.name,
            backend=self.spec.backend,
            state="degraded" if trouble else self.state,
            controller_pid=os.getpid(),
            controller_host="" if self.backend.has_clients_here else socket.gethostname(),
            scheduler_address=self.backend.address,
            started_at_s=self._started_at_s,
            workers=tuple(self._worker_status(info) for info in self._workers.values()),
            n_wanted=self.backend.n_wanted,
            cpus_per_worker=self.spec.cpus_per_worker,
            memory_per_worker_bytes=self.spec.memory_per_worker_bytes,
            active_runs=(*self.runs.active, *self.groups.active),
            idle_timeout_s=self.spec.idle_timeout_s,
            idle_left_s=self.lease.idle_left_s(now, self._n_working),
            age_left_s=self.lease.age_left_s(now),
            adapt=self.size.bounds,
            groups=self.groups.status(),
            environment=self.environment.verdict,
            gpus=self.telemetry.gpu_line(),
            trouble=trouble,
            waiting_runs=self.runs.waiting,
            place=self._place,
        )

    def expired(self) -> str | None:
        """Why the controller is to end now, or None; asked once a second."""
        now = awake_s()
        if self._n_working:
            self.lease.touch(now)
        return self.lease.expired(now, self._n_working)

    @property
    def is_working(self) -> bool:
        """Whether a run is active, or a group executes a cell."""
        return self._n_working > 0

    @property
    def _n_working(self) -> int:
        """Runs, and groups that execute a cell: an idle group keeps no cluster alive."""
        return len(self.runs.active) + self.groups.n_busy

    def _tell_run(self, run_id: str, text: str) -> None:
        self.runs.tell(text, (run_id,))
        self.groups.tell(run_id, text)

    async def _keep_size(self) -> None:
        """Replace lost workers, and follow the demand while there are bounds for that."""
        while True:
            await asyncio.sleep(_KEEP_SIZE_INTERVAL_S)
            try:
                await self._keep_size_once()
            except Exception:  # the wall of a loop task: the next round tries again
                log.exception("keeping the size of cluster %s failed", self.spec.name)

    def _observe_standstill(self) -> None:
        """Tell the runs that the controller could not act, if that was so."""
        loop = asyncio.get_running_loop()
        still_s = loop.clock.take_still_s() if isinstance(loop, AwakeLoop) else 0.0
        if still_s:
            text = (
                f"the controller stood still for {format_duration(still_s)} (a closed lid, a "
                f"paused machine, SIGSTOP): that time counts for nobody's silence and no timeout"
            )
            log.warning("%s", text)
            self.runs.tell(text)

    def _observe_silence(self) -> None:
        """Tell the runs of a worker that nothing is heard of it, and when it is heard again."""
        now_s = awake_s()
        if self.backend.trouble:
            self._silence.excuse(now_s)
        fallen, back = self._silence.news(now_s)
        silent = self._silence.silent(now_s)
        texts = {name: text_of_silence({name: silent[name]}) for name in fallen}
        texts |= {name: f"worker {name} is heard again" for name in back}
        for info in self._workers.values():
            if text := texts.get(info.name):
                log.warning("%s", text)
                self.runs.tell(text, self.slots.holders_on(info.address))

    async def _keep_size_once(self) -> None:
        self._observe_standstill()
        if self._client is not None and self._client.status != "running":
            log.warning("cluster %s has lost its scheduler", self.spec.name)
            self._lose_scheduler()
        await self.size.repair()
        for text in self.backend.take_notices():
            self.runs.tell(text)
        self._observe_silence()
        client = self.backend.client
        comm = client.scheduler_comm if client.status == "running" else None
        if comm is not None and client is not self._client:
            await self._follow(client)
        elif comm is not None and comm is not self._comm:
            # Dask's client was cut off and came back within a second: nobody announces again what
            # it has not heard.
            self._comm = comm
            await self._watch.refresh()
        await self.size.follow_demand()

    async def _follow(self, client: Client) -> None:
        """The scheduler was lost, and the backend has another one: what ran is repeated."""
        log.warning("cluster %s has a new scheduler: %s", self.spec.name, client.scheduler.address)
        self._lose_scheduler()
        await client.register_plugin(self._plugin)
        if self._transfer is not None:
            self._transfer.client = client
        self._calls.reconnect(client)
        self._dispatcher.reconnect(client)
        self.telemetry.reconnect(client)
        self._comm = client.scheduler_comm
        await self._watch.reconnect(client)
        self._client = client  # not before: what has failed half-way is tried again

    def _lose_scheduler(self) -> None:
        """Nothing can be sent: runs wait for workers."""
        self._client = None
        self._watch.lost()

    def _meter(self, spec: RunSpec) -> Callable[[], Reading]:
        prices = spec.prices
        tariff = None if isinstance(prices, msgspec.UnsetType) else tariff_of(prices, self._place)
        return lambda: self.telemetry.read(spec.run_id, tariff)

    @property
    def _place(self) -> Place:
        return Place(
            cpus=self.spec.cpus_per_worker,
            memory_bytes=self.spec.memory_per_worker_bytes,
            n_slots=self.backend.slots_per_worker,
            labels=dict(self.backend.node_labels),
            gpus=self.slots.gpus.kinds,
        )

    async def _gpus_known(self) -> None:
        await self._watch.gpus_known()

    def _name_of(self, address: str) -> str:
        info = self._workers.get(address)
        return info.name if info is not None else address

    def _host_of(self, address: str) -> str:
        info = self._workers.get(address)
        return info.host if info is not None else ""

    def _workers_changed(self, workers: dict[str, WorkerInfo]) -> None:
        self._workers = dict(workers)
        # A worker without what the others were given takes no work yet.
        ready = {a: info for a, info in workers.items() if self.environment.is_ready(a)}
        self.slots.set_workers({a: info.n_slots for a, info in ready.items()})
        self.slots.gpus.set_workers({a: info.gpus or SeenGpus() for a, info in workers.items()})
        names = {info.name for info in workers.values()}
        self.telemetry.keep(names)
        self._silence.keep(names, awake_s())
        if self.state == "ready":
            self.runs.wake()

    def _worker_status(self, info: WorkerInfo) -> WorkerStatus:
        return WorkerStatus(
            name=info.name,
            address=info.address,
            host=info.host,
            n_slots=info.n_slots,
            n_busy=self.slots.n_busy(info.address),
        )
