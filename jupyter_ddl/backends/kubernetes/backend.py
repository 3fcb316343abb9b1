"""The backend in the scheduler's pod: a client of that scheduler, and of Kubernetes."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dask
from distributed import Client, Security

from jupyter_ddl.backends.base import Backend, OnPhase
from jupyter_ddl.backends.dask_config import DASK_CONFIG
from jupyter_ddl.backends.kubernetes import manifest
from jupyter_ddl.backends.kubernetes.access import CONTROLLER_NEEDS
from jupyter_ddl.backends.kubernetes.api import KubeApi
from jupyter_ddl.backends.kubernetes.doctor import check_access
from jupyter_ddl.backends.kubernetes.lifetime import end_cluster, n_wanted_of
from jupyter_ddl.backends.kubernetes.names import DASK_LABEL, SIZE_ANNOTATION
from jupyter_ddl.backends.kubernetes.node_watch import NodeWatch
from jupyter_ddl.backends.kubernetes.pod_status import image_digest, is_ending
from jupyter_ddl.backends.kubernetes.pod_watch import PodWatch
from jupyter_ddl.backends.kubernetes.scheduler_pod import END, RENEW
from jupyter_ddl.backends.kubernetes.settings import kube_settings
from jupyter_ddl.backends.reaching import close_client, n_connected
from jupyter_ddl.errors import BackendError, ClusterError
from jupyter_ddl.protocol.cluster import ClusterSpec

__all__ = ["KubeBackend", "age_of", "worker_name", "worker_names_to_stop"]

log = logging.getLogger(__name__)

Json = dict[str, Any]


# Which workers go when a cluster shrinks.  Pure.


def worker_names_to_stop(
    pods: Sequence[Json], connected: Mapping[str, str], keep: Sequence[str], n_workers: int
) -> tuple[str, ...]:
    """Names of the workers to stop so that ``n_workers`` are left.

    Those that have not connected go first, those whose addresses are in ``keep`` last.

    Parameters
    ----------
    connected : mapping of str to str
        Name to address of the workers that the scheduler knows.
    """
    kept = frozenset(keep)

    def worth(name: str) -> tuple[bool, bool, str]:
        address = connected.get(name)
        return (address is not None, address in kept, name)

    alive = {
        name
        for pod in pods
        if "deletionTimestamp" not in pod["metadata"] and (name := worker_name(pod)) is not None
    }
    ordered = sorted(alive, key=worth)
    return tuple(ordered[: max(0, len(ordered) - n_workers)])


def worker_name(pod: Json) -> str | None:
    """The Dask worker in a pod: the operator names it in its environment."""
    for container in pod["spec"]["containers"]:
        for variable in container.get("env", []):
            if variable["name"] == "DASK_WORKER_NAME":
                return str(variable["value"])
    return None


_ADDRESS = f"tls://127.0.0.1:{manifest.COMM_PORT}"
_OF_WORKERS = "dask.org/component=worker"
_TICK_S = 0.25
_RENEW_S = 30.0
_CONNECT_S = 5.0
_NODES_S = 3.0
"""The shortest notices of the clouds are of 15 to 30 s."""
_OTHER_NODES_S = 15.0
"""Of nodes that are drained, and not taken away: many clusters may ask."""
_LONGEST_PAUSE_S = 30.0
"""Between two tries of what is refused, or has not come, for long."""
_CALL_S = 5.0
_CLOSE_S = 8.0
_ENDING_S = 60.0
"""How long a pod may take to be told that its cluster is gone."""
_NO_ANSWER = (OSError, TimeoutError, AttributeError)
"""Of a scheduler: a client that has given up knows none."""


class KubeBackend(Backend):
    """Made and used on the controller's loop, in a pod that :class:`KubeHost` has asked for."""

    client: Client

    def __init__(self, spec: ClusterSpec) -> None:
        self._spec = spec
        self._settings = kube_settings(spec)
        self._n_wanted = manifest.n_workers_of(spec)
        self._api: KubeApi | None = None
        self._cluster: Json | None = None
        self._scheduler_id = self._image = ""
        self._retiring: tuple[str, ...] = ()
        self._watch: PodWatch | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._is_lost = False
        self._notices: list[str] = []

    @property
    def n_wanted(self) -> int:
        return self._n_wanted

    @property
    def age_s(self) -> float:
        return 0.0 if self._cluster is None else age_of(self._cluster, datetime.now(UTC))

    @property
    def slots_per_worker(self) -> int:
        return self._settings.slots

    @property
    def node_labels(self) -> Mapping[str, str]:
        return manifest.node_labels(self._spec)

    @property
    def address(self) -> str:
        if self._api is None or self._cluster is None:
            return ""
        name = self._cluster["metadata"]["name"]
        return f"tls://{name}-scheduler.{self._api.namespace}:{manifest.COMM_PORT}"

    @property
    def has_clients_here(self) -> bool:
        return False

    @property
    def packages_from(self) -> str:
        return self._settings.image or ""

    @property
    def image(self) -> str:
        return self._image

    @property
    def trouble(self) -> str:
        if self.client.status != "running":
            return "the scheduler is lost: the next one is waited for, runs wait"
        if self._is_lost:
            return "the scheduler is connected but silent: runs go on"
        return "" if self._watch is None else self._watch.shortage

    # -- start -----------------------------------------------------------------------------------

    async def start(self, on_phase: OnPhase) -> None:
        dask.config.set(DASK_CONFIG)
        try:
            async with asyncio.timeout(self._spec.start_timeout_s):
                await self._start(on_phase)
        except TimeoutError:
            raise BackendError(
                f"the scheduler of this pod did not serve within {self._spec.start_timeout_s:.0f} "
                f"s; its container's log says more"
            ) from None

    async def _start(self, on_phase: OnPhase) -> None:
        api = self._api = await KubeApi.connect()
        name = _own_name()
        await check_access(api, CONTROLLER_NEEDS, name)
        cluster = await self._own_cluster(api, name)
        self._security = _security(manifest.TLS_FOLDER)
        on_phase("waiting for the scheduler of this pod")
        while not await self._try_connect():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(_TICK_S)
        self._cluster, self._n_wanted = cluster, n_wanted_of(cluster)
        watch = self._watch = PodWatch(api, cluster, self._n_wanted, on_phase)
        shortages = watch.explain_shortages(
            lambda: self._n_wanted, lambda: n_connected(self.client)
        )
        self._tasks += [
            asyncio.create_task(shortages, name="explain shortages"),
            asyncio.create_task(self._renew_on(), name="renew lease"),
            asyncio.create_task(self._watch_nodes(), name="watch nodes"),
            asyncio.create_task(self._look_for_image(), name="look for image"),
        ]

    async def _own_cluster(self, api: KubeApi, name: str) -> Json:
        """The DaskCluster of this pod; one that ends takes the pod along, which is waited for."""
        try:
            cluster = await api.get("daskclusters", name)
        except BackendError as error:
            if error.status != 404:
                raise
            cluster = None
        if cluster is None or is_ending(cluster):
            log.info("DaskCluster %s ends: this pod goes with it", name)
            await asyncio.sleep(_ENDING_S)
            raise ClusterError(f"DaskCluster {name} is gone, and its pod is still there")
        return cluster

    async def _look_for_image(self) -> None:
        """Which image it is that workers have: what a tag means may change."""
        api, cluster = self._started()
        selector = f"{DASK_LABEL}={cluster['metadata']['name']}"
        pause_s = _TICK_S
        while not self._image:
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)  # a cluster may have no worker for days
            try:
                pods = await api.list("pods", labelSelector=selector)
            except ClusterError as error:
                log.warning("image: %s", error.message)
                continue
            self._image = image_digest(pods, str(self._settings.image))
        log.info("image %s is %s", self._settings.image, self._image)

    # -- the scheduler ---------------------------------------------------------------------------

    async def _try_connect(self) -> bool:
        """Connect to the scheduler if it answers.

        The first connection renews no lease: a controller that fails again and again before it
        serves would keep its cluster for ever.
        """
        former: Client | None = getattr(self, "client", None)
        try:
            client = await Client(
                _ADDRESS,
                security=self._security,
                asynchronous=True,
                set_as_default=False,
                timeout=_CONNECT_S,
            )
        except (OSError, TimeoutError) as error:
            log.info("the scheduler does not serve yet: %s", error)
            return False
        try:
            scheduler_id = await (_id_of(client) if former is None else self._renew(client))
        except _NO_ANSWER as error:
            log.info("the scheduler does not answer yet: %r", error)
            await close_client(client)
            return False
        self._is_lost = False
        if former is not None and self._serves(former, scheduler_id):
            await close_client(client)  # it was slow, not lost: what it has to do goes on
            return True
        self.client, self._scheduler_id = client, scheduler_id
        if former is not None:
            await close_client(former)
        return True

    def _serves(self, client: Client, scheduler_id: str) -> bool:
        """Whether a client is connected to this scheduler, and was to no other before.

        Dask's client connects again by itself, to whoever answers at the address.
        """
        if client.status != "running" or scheduler_id != self._scheduler_id:
            return False
        return bool(client.scheduler_info().get("id") == scheduler_id)

    async def _renew(self, client: Client) -> str:
        async with asyncio.timeout(_CALL_S):
            return str(await getattr(client.scheduler, RENEW)(retiring=self._retiring))

    async def _renew_on(self) -> None:
        """Tell the scheduler that its controller lives, until cancelled."""
        interval_s = min(_RENEW_S, self._settings.lease_s / 4)
        while True:
            await asyncio.sleep(interval_s)
            try:
                await self._look_after_scheduler()
            except Exception:  # without a renewal the cluster ends: the next round tries again
                log.exception("the lease was not renewed")

    async def _watch_nodes(self) -> None:
        """Have workers leave nodes that announce their end, until cancelled."""
        api, pool = self._started()[0], self._settings.spot
        nodes = NodeWatch(api, () if pool is None else pool.notices)
        usual_s = pause_s = _OTHER_NODES_S if pool is None else _NODES_S
        may_look, said = False, ""
        while True:
            await asyncio.sleep(pause_s)
            try:
                may_look = may_look or await nodes.may_look()
                if not may_look:
                    log.info("nodes can't be read: pods learn of their end by SIGTERM alone")
                    return
                told = await nodes.poll(self._name)
            except ClusterError as error:
                if error.message != said:
                    log.warning("nodes: %s", error.message)
                said, pause_s = error.message, min(2 * pause_s, _LONGEST_PAUSE_S)
                continue
            said, pause_s = "", usual_s
            for text in told:
                log.warning("%s", text)
            self._notices += told

    def take_notices(self) -> list[str]:
        notices, self._notices = self._notices, []
        return notices

    async def _look_after_scheduler(self) -> None:
        client = self.client
        try:
            is_lost = await self._renew(client) != self._scheduler_id
        except _NO_ANSWER as error:
            log.warning("the scheduler does not answer: %r", error)
            is_lost = True
        if client is self.client:  # else it was replaced meanwhile, and says nothing of the new one
            self._is_lost = self._is_lost or is_lost

    async def repair(self) -> None:
        """Find the scheduler again when it was lost; pods are replaced by Kubernetes."""
        if not self._serves(self.client, self._scheduler_id):
            if self.client.status != "closed":
                log.warning("the connection to the scheduler is lost")
                # It would connect to the next one by itself, work would be sent that way, and be
                # lost a second time when our own connection takes its place.
                await close_client(self.client)
            self._is_lost = True
        if self._is_lost and await self._try_connect():
            log.info("connected to scheduler %s", self._scheduler_id)

    # -- size ------------------------------------------------------------------------------------

    async def scale(self, n_workers: int, keep: Sequence[str]) -> None:
        api, name = self._started()[0], self._name
        if self.client.scheduler is None:
            raise ClusterError(
                f"the scheduler of {name} is lost, another one starts; scale again when "
                f"`%cluster` shows workers"
            )
        pods = await api.list("pods", labelSelector=f"{DASK_LABEL}={name},{_OF_WORKERS}")
        identity = await self.client.scheduler.identity(n_workers=-1)
        connected = {facts["name"]: address for address, facts in identity["workers"].items()}
        self._retiring = worker_names_to_stop(pods, connected, keep, n_workers)
        await self._renew(self.client)  # the operator asks the scheduler which ones are to go
        # Not the cluster, from which the operator would copy it to the group first.
        replicas = {"spec": {"worker": {"replicas": n_workers}}}
        await api.patch("daskworkergroups", f"{name}-default", replicas)
        self._n_wanted = n_workers
        note = {"metadata": {"annotations": {SIZE_ANNOTATION: str(n_workers)}}}
        await api.patch("daskclusters", name, note)

    def _started(self) -> tuple[KubeApi, Json]:
        if self._api is None or self._cluster is None:
            raise ClusterError("this cluster has not been started")
        return self._api, self._cluster

    @property
    def _name(self) -> str:
        return str(self._started()[1]["metadata"]["name"])

    # -- the end ---------------------------------------------------------------------------------

    async def close(self) -> None:
        """End the cluster, and this pod with it; of one that it has not begun with, nothing."""
        if self._cluster is not None:
            await self._end(*self._started())
        await self.leave()

    async def _end(self, api: KubeApi, cluster: Json) -> None:
        name, self._cluster = self._name, None
        try:
            async with asyncio.timeout(_CLOSE_S):
                await end_cluster(api, name)
        except (BackendError, TimeoutError) as error:
            log.error("DaskCluster %s is not deleted from here: %r", name, error)
            try:
                async with asyncio.timeout(_CALL_S):
                    await getattr(self.client.scheduler, END)()
            except _NO_ANSWER as lost:
                log.error("its scheduler can't be told either: %r; its lease ends it", lost)

    async def leave(self) -> None:
        """Let go; the pod, or the next process of its container, goes on."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        client = getattr(self, "client", None)
        if client is not None:
            await close_client(client)
        if self._api is not None:
            await self._api.aclose()


async def _id_of(client: Client) -> str:
    """Which scheduler it is that a client is connected to."""
    async with asyncio.timeout(_CALL_S):
        return str((await client.scheduler.identity(n_workers=0))["id"])


def _own_name() -> str:
    """Of the DaskCluster that this pod belongs to."""
    name = os.environ.get(manifest.CLUSTER_VARIABLE, "")
    if not name:
        raise ClusterError(
            f"{manifest.CLUSTER_VARIABLE} names no DaskCluster: this controller runs in pods "
            f"that `%cluster start kube` makes"
        )
    return name


def age_of(cluster: Json, now: datetime) -> float:
    """Seconds since it was made; 0 where clocks differ."""
    made = datetime.fromisoformat(cluster["metadata"]["creationTimestamp"])
    return max(0.0, (now - made).total_seconds())


def _security(folder: Path) -> Security:
    """What all connections of the cluster have in common."""
    certificate, key = ((folder / name).read_text() for name in ("tls.crt", "tls.key"))
    return Security(
        require_encryption=True,
        tls_ca_file=certificate,
        tls_client_cert=certificate,
        tls_client_key=key,
    )
