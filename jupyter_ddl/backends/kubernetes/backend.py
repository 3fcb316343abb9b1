"""The backend on Kubernetes: a DaskCluster, watched while it starts, and its scheduler's client."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import dask
from distributed import Client, Security

from jupyter_ddl.backends.base import Backend, OnPhase
from jupyter_ddl.backends.certificates import temporary_security
from jupyter_ddl.backends.dask_config import DASK_CONFIG
from jupyter_ddl.backends.kubernetes import lifetime as lease
from jupyter_ddl.backends.kubernetes import manifest, names
from jupyter_ddl.backends.kubernetes.api import KubeApi
from jupyter_ddl.backends.kubernetes.doctor import check_access, check_cluster, check_options
from jupyter_ddl.backends.kubernetes.lifetime import end_cluster, end_orphans, see_off
from jupyter_ddl.backends.kubernetes.manifest import network_policy, tls_secret
from jupyter_ddl.backends.kubernetes.node_watch import NodeWatch
from jupyter_ddl.backends.kubernetes.pod_status import image_digest
from jupyter_ddl.backends.kubernetes.pod_watch import PodWatch
from jupyter_ddl.backends.kubernetes.route import Route, is_policy_enforced
from jupyter_ddl.backends.kubernetes.scheduler_pod import RENEW
from jupyter_ddl.backends.kubernetes.settings import kube_settings
from jupyter_ddl.backends.reaching import close_client, n_connected
from jupyter_ddl.errors import BackendError, ClusterError
from jupyter_ddl.protocol.cluster import ClusterSpec
from jupyter_ddl.store.awake import awake_s

__all__ = ["KubeBackend", "parts_of", "put_back", "worker_name", "worker_names_to_stop"]


# What pods of a cluster need beside the DaskCluster itself, by resource; the cluster owns it.

log = logging.getLogger(__name__)

Json = dict[str, Any]


def parts_of(cluster: Json, security: Security) -> dict[str, Json]:
    """The objects of a DaskCluster as the API server has returned it."""
    return {
        "secrets": tls_secret(cluster, security.tls_ca_file, security.tls_scheduler_key),
        "networkpolicies": network_policy(cluster),
    }


async def put_back(api: KubeApi, parts: dict[str, Json]) -> None:
    """Create what somebody has deleted; what is there is refused as such."""
    for resource, part in parts.items():
        try:
            await api.create(resource, part)
            log.warning("%s %s was deleted; created again", resource, part["metadata"]["name"])
        except BackendError as error:
            if error.status != 409:
                log.warning("%s", error.message)


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


_N_WORKERS = 2
_RENEW_S = 30.0
_CONNECT_S = 5.0
_LOOK_S = 3.0
_NODES_S = 3.0
"""The shortest notices of the clouds are of 15 to 30 s."""
_CALL_S = 5.0
_CLOSE_S = 8.0
_SEE_OFF_S = 6.0
_NO_ANSWER = (OSError, TimeoutError, AttributeError)
"""Of a scheduler: a client that has given up knows none."""


class KubeBackend(Backend):
    """Made and used on the controller's loop."""

    client: Client

    def __init__(self, spec: ClusterSpec) -> None:
        self._spec = spec
        self._settings = kube_settings(spec)
        self._n_wanted = _N_WORKERS if spec.n_workers is None else spec.n_workers
        self._api: KubeApi | None = None
        self._cluster: Json | None = None
        self._route: Route | None = None
        self._scheduler_id = self._image = ""
        self._retiring: tuple[str, ...] = ()
        self._watch: PodWatch | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._explaining: asyncio.Task[None] | None = None
        self._is_lost = False
        self._gone = ""
        self._asked_at_s = 0.0
        self._notices: list[str] = []

    @property
    def n_wanted(self) -> int:
        return self._n_wanted

    @property
    def slots_per_worker(self) -> int:
        return self._settings.slots

    @property
    def node_labels(self) -> Mapping[str, str]:
        return manifest.node_labels(self._spec)

    @property
    def packages_from(self) -> str:
        return self._settings.image or ""

    @property
    def image(self) -> str:
        return self._image

    @property
    def gone(self) -> str:
        return self._gone

    @property
    def trouble(self) -> str:
        if self._gone:
            return f"{self._gone}: it is made anew while something runs"
        if self.client.status != "running":
            return "the scheduler's pod is lost: the next one is waited for, runs wait"
        if self._is_lost:
            return "the scheduler is connected but silent: runs go on"
        return "" if self._watch is None else self._watch.shortage

    # -- start -----------------------------------------------------------------------------------

    async def start(self, on_phase: OnPhase) -> None:
        spec = self._spec
        check_options(spec)
        dask.config.set(DASK_CONFIG)
        try:
            async with asyncio.timeout(spec.start_timeout_s):
                await self._start(on_phase)
        except TimeoutError:
            await self._end(is_seen_off=True)
            raise BackendError(
                f"starting {self._n_wanted} pods took longer than {spec.start_timeout_s:.0f} s; "
                f"`%cluster doctor kube` checks what is missing"
            ) from None
        except BaseException:
            # Pods of an image that can't be pulled would stay for a minute, and fill a quota.
            await asyncio.shield(self._end(is_seen_off=True))
            raise

    async def _start(self, on_phase: OnPhase) -> None:
        spec = self._spec
        api = self._api = await KubeApi.connect(self._settings.namespace)
        on_phase(f"asking {api.server} for pods in namespace {api.namespace}")
        await check_access(api)
        await end_orphans(api, spec.name)
        self._security = temporary_security()
        watch = await self._bring_up(api, on_phase)
        self._tasks.append(asyncio.create_task(self._renew_on(), name="renew lease"))
        await watch.until_workers_serve(lambda: n_connected(self.client))
        await self._record_image(api, _name(self._started()[1]))
        await self._probe_policy(watch.scheduler_host, on_phase)
        self._explain_shortages(watch)
        self._tasks.append(asyncio.create_task(self._watch_nodes(), name="watch nodes"))

    async def _bring_up(self, api: KubeApi, on_phase: OnPhase) -> PodWatch:
        """A DaskCluster, and a client of its scheduler."""
        cluster = await self._create(api)
        self._route = Route(api, f"{_name(cluster)}-scheduler")
        watch = self._watch = PodWatch(api, cluster, self._n_wanted, on_phase)
        await watch.until_scheduler_serves(self._try_connect)
        return watch

    def _explain_shortages(self, watch: PodWatch) -> None:
        if self._explaining is not None:
            self._explaining.cancel()
        explaining = watch.explain_shortages(
            lambda: self._n_wanted, lambda: n_connected(self.client)
        )
        self._explaining = asyncio.create_task(explaining, name="explain shortages")
        self._tasks.append(self._explaining)

    async def begin_anew(self) -> None:
        api, _ = self._started()
        if self._route is not None:
            await self._route.close()
        try:
            async with asyncio.timeout(self._spec.start_timeout_s):
                watch = await self._bring_up(api, lambda text: log.info("anew: %s", text))
        except BaseException as error:
            await asyncio.shield(self._take_back(api))
            if isinstance(error, TimeoutError):
                raise BackendError(
                    f"its scheduler did not serve within {self._spec.start_timeout_s:.0f} s; "
                    f"`%cluster doctor kube` checks what is missing"
                ) from None
            raise
        self._gone = ""
        self._explain_shortages(watch)
        await self._record_image(api, _name(self._started()[1]))

    async def _take_back(self, api: KubeApi) -> None:
        """Delete what was made for nothing; the next look finds that it is gone."""
        name = _name(self._started()[1])
        try:
            async with asyncio.timeout(_CLOSE_S):
                await end_cluster(api, name)
        except (BackendError, TimeoutError) as error:
            log.error("DaskCluster %s is not deleted: %r", name, error)

    async def _create(self, api: KubeApi) -> Json:
        spec = self._spec
        body = manifest.dask_cluster(
            spec,
            names.object_name(spec.name),
            api.namespace,
            user=names.user_name(),
            n_workers=self._n_wanted,
            annotations=lease.controller_annotations(),
            owner=await lease.own_pod(api),
        )
        if self._settings.pod_template is not None:
            await check_cluster(api, body)
        cluster = self._cluster = await api.create("daskclusters", body)
        self._parts = parts_of(cluster, self._security)
        for resource, part in self._parts.items():
            await api.create(resource, part)
        return cluster

    async def _record_image(self, api: KubeApi, name: str) -> None:
        """Write down which image it was: what a tag means may change."""
        selector = f"{names.DASK_LABEL}={name}"
        reference = str(self._settings.image)
        self._image = image_digest(await api.list("pods", labelSelector=selector), reference)
        if self._image:
            log.info("image %s is %s", reference, self._image)
            note = {"metadata": {"annotations": {names.IMAGE_ANNOTATION: self._image}}}
            await api.patch("daskclusters", name, note)

    async def _probe_policy(self, scheduler_host: str, on_phase: OnPhase) -> None:
        """Say so when the cluster's NetworkPolicy has no effect."""
        identity = await self.client.scheduler.identity(n_workers=-1)
        address = next(iter(identity["workers"]), None)
        if address is None or await is_policy_enforced(scheduler_host, address) is not False:
            return
        text = "this Kubernetes does not enforce network policies: other pods can reach the workers"
        log.warning("%s", text)
        on_phase(text)

    # -- the scheduler ---------------------------------------------------------------------------

    async def _try_connect(self, is_ready: bool) -> bool:
        """Connect to the scheduler if it answers; ``is_ready`` is what Kubernetes says of it."""
        if self._route is None:
            return False
        address = await self._route.address(may_forward=is_ready)
        if address is None:
            return False
        try:
            client = await Client(
                address,
                security=self._security,
                asynchronous=True,
                set_as_default=False,
                timeout=_CONNECT_S,
            )
        except (OSError, TimeoutError) as error:
            log.info("the scheduler at %s does not serve yet: %s", address, error)
            return False
        try:
            scheduler_id = await self._renew(client)
        except _NO_ANSWER as error:
            log.info("the scheduler at %s does not answer yet: %r", address, error)
            await close_client(client)
            return False
        former: Client | None = getattr(self, "client", None)
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
            await self._look_after_scheduler()
            await self._look_for_cluster()
            if not self._gone:
                await put_back(self._started()[0], self._parts)

    async def _watch_nodes(self) -> None:
        """Have workers leave nodes that announce their end, until cancelled."""
        api, pool = self._started()[0], self._settings.spot
        nodes = NodeWatch(api, () if pool is None else pool.notices)
        try:
            if not await nodes.may_look():
                log.info("nodes can't be read: pods learn of their end by SIGTERM alone")
                return
        except BackendError as error:
            log.warning("nodes are not watched: %s", error.message)
            return
        while True:
            await asyncio.sleep(_NODES_S)
            try:
                told = await nodes.poll(_name(self._started()[1]))
            except ClusterError as error:
                log.warning("nodes: %s", error.message)
                continue
            for text in told:
                log.warning("%s", text)
            self._notices += told

    def take_notices(self) -> list[str]:
        notices, self._notices = self._notices, []
        return notices

    async def _look_for_cluster(self) -> None:
        """Whether the DaskCluster is there: nothing brings another scheduler when it is not."""
        api, cluster = self._started()
        try:
            found = await api.get("daskclusters", _name(cluster))
        except BackendError as error:
            if error.status == 404 and cluster is self._cluster:
                self._lose_cluster(cluster)
            return
        if found["metadata"]["uid"] != cluster["metadata"]["uid"] and cluster is self._cluster:
            self._lose_cluster(cluster)

    def _lose_cluster(self, cluster: Json) -> None:
        if not self._gone:
            self._gone = f"DaskCluster {_name(cluster)} was deleted, by somebody or after its lease"
            log.warning("%s", self._gone)

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
        if self._gone:
            return
        if self._is_lost and await self._try_connect(is_ready=False):
            log.info("connected to scheduler %s", self._scheduler_id)
        elif self._is_lost and awake_s() - self._asked_at_s > _LOOK_S:
            self._asked_at_s = awake_s()
            await self._look_for_cluster()

    # -- size ------------------------------------------------------------------------------------

    async def scale(self, n_workers: int, keep: Sequence[str]) -> None:
        api, cluster = self._started()
        if self.client.scheduler is None:
            raise ClusterError(
                f"the scheduler of {_name(cluster)} is lost, another one starts; scale again when "
                f"`%cluster` shows workers"
            )
        pods = await api.list(
            "pods",
            labelSelector=f"{names.DASK_LABEL}={_name(cluster)},dask.org/component=worker",
        )
        identity = await self.client.scheduler.identity(n_workers=-1)
        connected = {facts["name"]: address for address, facts in identity["workers"].items()}
        self._retiring = worker_names_to_stop(pods, connected, keep, n_workers)
        await self._renew(self.client)  # the operator asks the scheduler which ones are to go
        patch = {"spec": {"worker": {"replicas": n_workers}}}
        await api.patch("daskclusters", _name(cluster), patch)
        self._n_wanted = n_workers

    def _started(self) -> tuple[KubeApi, Json]:
        if self._api is None or self._cluster is None:
            raise ClusterError("this cluster has not been started")
        return self._api, self._cluster

    # -- the end ---------------------------------------------------------------------------------

    async def close(self) -> None:
        await self._end(is_seen_off=True)

    async def _end(self, *, is_seen_off: bool = False) -> None:
        """End the cluster; ``is_seen_off``: and wait for the end of its pods."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        cluster, self._cluster = self._cluster, None
        if self._api is not None and cluster is not None:
            try:
                async with asyncio.timeout(_CLOSE_S):
                    await end_cluster(self._api, _name(cluster))
            except (BackendError, TimeoutError) as error:
                log.error("DaskCluster %s is not deleted: %r", _name(cluster), error)
                is_seen_off = False  # its pods do not end
        client = getattr(self, "client", None)
        if client is not None:
            await close_client(client)
        if self._route is not None:
            await self._route.close()
        if self._api is None:
            return
        if cluster is not None and is_seen_off:
            try:
                async with asyncio.timeout(_SEE_OFF_S):
                    await see_off(self._api, _name(cluster))
            except (BackendError, TimeoutError) as error:
                log.info("pods of %s end later than this: %r", _name(cluster), error)
        await self._api.aclose()


def _name(cluster: Json) -> str:
    return str(cluster["metadata"]["name"])
