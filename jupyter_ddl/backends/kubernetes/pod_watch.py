"""Watches a cluster's pods: tells the phases of a start, and ends the wait when it is hopeless.

Later it knows why workers are missing that were asked for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from jupyter_ddl.backends.kubernetes.api import KubeApi
from jupyter_ddl.backends.kubernetes.diagnosis import Cause, diagnose
from jupyter_ddl.backends.kubernetes.names import DASK_LABEL
from jupyter_ddl.backends.kubernetes.pod_status import (
    ComingRoom,
    View,
    claims_of,
    is_connecting,
    is_ending,
    is_ready,
    is_scheduler,
    progress,
    statuses,
    telling,
)
from jupyter_ddl.errors import BackendError

__all__ = ["PodWatch"]

log = logging.getLogger(__name__)

_TICK_S = 0.25
_LOOK_S = 0.75
"""How often pods are listed; the scheduler is tried more often."""
_EXPLAIN_S = 4.0
"""The same, of a cluster that serves."""
_AWAY_S = 2.0
"""An API server that took so long was away: operator and nodes have to find it again, too."""
_FIND_S = 20.0
"""For so long afterwards nothing is held against them: kopf tries again after 1, 2, 3, 5, 8 s."""
_NODES_S = 2.0
"""How long nodes take to lead the way to a scheduler that is ready."""
_UNREACHABLE_S = 25.0
_SILENT_S = 6.0
"""A pod that runs for so long without having connected has its log read."""
_LOG_S = 4.0
_N_CRASH_LINES = 5
_N_SILENT_LINES = 24
"""A worker says that it knows the scheduler's name, a dozen lines later whom it waits for, then six
about itself."""

Json = dict[str, Any]


class PodWatch:
    """Used on the controller's loop only."""

    def __init__(
        self, api: KubeApi, cluster: Json, n_workers: int, on_phase: Callable[[str], None]
    ) -> None:
        self._api = api
        self._cluster = cluster
        self._name = str(cluster["metadata"]["name"])
        self._n_workers = n_workers
        self._on_phase = on_phase
        self._loop = asyncio.get_running_loop()
        self._looked_s = self._read_logs_s = self._patient_until_s = float("-inf")
        self._room = ComingRoom(self._loop.time)
        self._running_since_s: dict[str, float] = {}
        self._logs: dict[str, str] = {}
        self._view = View(self._name, cluster, ())
        self._told = ""
        self.shortage = ""
        """Why workers are missing, in one line; empty: none are, or they may come yet."""
        self._cause: tuple[str, float] | None = None

    async def until_scheduler_serves(self, try_connect: Callable[[bool], Awaitable[bool]]) -> None:
        """Until the scheduler is connected.

        Raises
        ------
        BackendError
            It will not come; one sentence says why, and what to do.
        """
        ready_since_s: float | None = None
        while True:
            await self._poll(0)
            scheduler = self._scheduler()
            if scheduler is not None and is_connecting(scheduler):
                if is_ready(scheduler) and ready_since_s is None:
                    ready_since_s = self._loop.time()
                if await try_connect(self._is_out_of_reach(ready_since_s)):
                    return
                self._refuse_when_unreachable(ready_since_s)
            self._refuse_when_hopeless()
            await asyncio.sleep(_TICK_S)

    async def until_workers_serve(self, count: Callable[[], Awaitable[int]]) -> None:
        """Until all workers are connected, or those for which there is room.

        Raises
        ------
        BackendError
            None will come; one sentence says why, and what to do.
        """
        while (n_connected := await count()) < self._n_workers:
            await self._poll(n_connected)
            cause = self._believed()
            if cause is not None and cause.is_about_room and n_connected:
                log.warning("%s", cause.text)
                self._on_phase(f"{n_connected} of {self._n_workers} workers: {cause.text}")
                return
            if cause is not None:
                raise BackendError(cause.text)
            await asyncio.sleep(_TICK_S)

    async def explain_shortages(
        self, n_wanted: Callable[[], int], count: Callable[[], Awaitable[int]]
    ) -> None:
        """Keep :attr:`shortage` true, until cancelled."""
        while True:
            await asyncio.sleep(_EXPLAIN_S)
            try:
                async with asyncio.timeout(_EXPLAIN_S):
                    n_connected = await count()
                shortage = await self._explain(n_wanted(), n_connected)
            except BackendError as error:
                shortage = error.message
            except (OSError, AttributeError):  # the scheduler is lost, which is told elsewhere
                continue
            except Exception:
                log.exception("why workers are missing was not found out")  # it is, next time
                continue
            if shortage and shortage != self.shortage:
                log.warning("workers are missing: %s", shortage)
            self.shortage = shortage

    async def _explain(self, n_workers: int, n_connected: int) -> str:
        self._n_workers = n_workers
        if n_connected >= n_workers:
            self._cause = None
            return ""
        await self._observe(n_connected)
        cause = self._believed()
        return "" if cause is None else cause.text

    @property
    def scheduler_host(self) -> str:
        """Address of the scheduler's pod; empty while it has none."""
        scheduler = self._scheduler()
        return "" if scheduler is None else str(scheduler.get("status", {}).get("podIP", ""))

    async def _poll(self, n_connected: int) -> None:
        await self._observe(n_connected)
        line = progress(self._view)
        if line != self._told:
            self._told = line
            self._on_phase(line)

    async def _observe(self, n_connected: int) -> None:
        now_s = self._loop.time()
        if now_s - self._looked_s < _LOOK_S:
            return
        self._looked_s = now_s
        all_pods, events, cluster = await asyncio.gather(
            self._api.list("pods", labelSelector=DASK_LABEL),
            self._api.list("events"),
            self._api.get("daskclusters", self._name),
        )
        if self._loop.time() - now_s > _AWAY_S:
            self._cause = None
            self._patient_until_s = self._loop.time() + _FIND_S
        pods = [pod for pod in all_pods if pod["metadata"]["labels"][DASK_LABEL] == self._name]
        pods = [pod for pod in pods if not is_ending(pod)]
        self._forget_all_but({str(pod["metadata"]["name"]) for pod in pods})
        await self._read_logs(pods, n_connected)
        self._view = View(
            name=self._name,
            cluster=cluster,
            pods=pods,
            n_ending=self._room.n_ending(all_pods),
            events=[event for event in events if _is_about(event, self._name, pods)],
            logs=self._logs,
            n_workers=self._n_workers,
            n_connected=n_connected,
        )

    def _forget_all_but(self, names: set[str]) -> None:
        """What a pod said that is gone explains nothing any more."""
        self._logs = {name: text for name, text in self._logs.items() if name in names}
        since_s = self._running_since_s
        self._running_since_s = {name: at_s for name, at_s in since_s.items() if name in names}

    async def _read_logs(self, pods: list[Json], n_connected: int) -> None:
        """Logs of pods that crashed, and of those that run without getting connected."""
        now_s = self._loop.time()
        if now_s - self._read_logs_s < _LOG_S:
            return
        wanted: dict[str, tuple[str, bool]] = {}
        for pod in pods:
            name = pod["metadata"]["name"]
            since_s = self._running_since_s.setdefault(name, now_s)
            is_silent = is_connecting(pod) and now_s - since_s > _SILENT_S
            if (found := telling(statuses(pod), is_silent=is_silent)) is not None:
                wanted[name] = found
        if not wanted:
            return
        self._read_logs_s = now_s
        for name, (container, is_previous) in wanted.items():
            n_lines = _N_CRASH_LINES if is_previous else _N_SILENT_LINES
            text = await self._api.log_tail(name, container, previous=is_previous, n_lines=n_lines)
            if text:
                self._logs[name] = text

    def _believed(self) -> Cause | None:
        """What holds the cluster up, if it has done so for long enough."""
        cause = diagnose(self._view)
        if cause is None or (cause.is_about_room and self._view.n_ending):
            self._cause = None
            return None
        kind = cause.sentence.split()[0] + cause.fix
        now_s = self._loop.time()
        if self._cause is None or self._cause[0] != kind:
            room_s = self._room.none_before_s if cause.is_about_room else now_s
            self._cause = (kind, max(now_s, room_s, self._patient_until_s))
        return cause if now_s - self._cause[1] >= cause.after_s else None

    def _refuse_when_hopeless(self) -> None:
        cause = self._believed()
        if cause is not None:
            raise BackendError(cause.text)

    def _is_out_of_reach(self, ready_since_s: float | None) -> bool:
        """Whether a scheduler that does not answer now must be reached another way."""
        return ready_since_s is not None and self._loop.time() - ready_since_s > _NODES_S

    def _refuse_when_unreachable(self, ready_since_s: float | None) -> None:
        if ready_since_s is None or self._loop.time() - ready_since_s < _UNREACHABLE_S:
            return
        raise BackendError(
            f"the controller of {self._name} runs, but there is no route to it from here, neither "
            f"straight nor through the API server; allow get and create of pods/portforward, or "
            f"start from a notebook inside the cluster"
        )

    def _scheduler(self) -> Json | None:
        for pod in self._view.pods:
            if is_scheduler(pod):
                return pod
        return None


def _is_about(event: Json, name: str, pods: list[Json]) -> bool:
    """Whether an event is about a cluster, or a claim of its pods."""
    involved = event.get("involvedObject", {})
    about = str(involved.get("name", ""))
    if involved.get("kind") == "PersistentVolumeClaim":
        return any(about in claims_of(pod) for pod in pods)
    return about == name or about.startswith(f"{name}-")
