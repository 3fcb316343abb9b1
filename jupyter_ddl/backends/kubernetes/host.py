"""Where the controllers of clusters of pods run: beside the scheduler, in its pod."""

from __future__ import annotations

import asyncio
import base64
import logging
import os
from typing import Any

import msgspec

from jupyter_ddl.backends.base import ControllerHost, OnPhase
from jupyter_ddl.backends.certificates import PortKeys, port_keys, temporary_security
from jupyter_ddl.backends.kubernetes import belongings, manifest, names
from jupyter_ddl.backends.kubernetes.access import rules_for
from jupyter_ddl.backends.kubernetes.api import KubeApi
from jupyter_ddl.backends.kubernetes.doctor import (
    check_access,
    check_account,
    check_cluster,
    check_options,
)
from jupyter_ddl.backends.kubernetes.home_claim import claim_of, forget_claim, make_claim
from jupyter_ddl.backends.kubernetes.lifetime import end_cluster, living_clusters, see_off
from jupyter_ddl.backends.kubernetes.pod_status import image_digest, is_ending
from jupyter_ddl.backends.kubernetes.pod_watch import PodWatch
from jupyter_ddl.backends.kubernetes.route import Route, bracketed, is_policy_enforced
from jupyter_ddl.backends.kubernetes.settings import kube_settings
from jupyter_ddl.errors import BackendError, ClusterError, JupyterDDLError
from jupyter_ddl.protocol.cluster import SPEC_FILE, ClusterSpec
from jupyter_ddl.protocol.link import Link
from jupyter_ddl.protocol.reading import from_json
from jupyter_ddl.protocol.replies import StatusResult, WorkerStatus
from jupyter_ddl.protocol.requests import GetStatus

__all__ = ["KubeHost"]

log = logging.getLogger(__name__)

_CONNECT_S = _ANSWER_S = 5.0
_CLOSE_S = 8.0
_SEE_OFF_S = 6.0

Json = dict[str, Any]
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class KubeHost(ControllerHost):
    """Made and used in a mirror, on its loop."""

    def __init__(self, spec: ClusterSpec) -> None:
        self._spec = spec
        self._settings = kube_settings(spec)
        self._n_workers = manifest.n_workers_of(spec)
        self._api: KubeApi | None = None
        self._cluster: Json | None = None
        self._keys: PortKeys | None = None
        self._way: Route | None = None
        self._way_to_dask: Route | None = None
        self._link: Link | None = None
        self._workers: tuple[WorkerStatus, ...] = ()
        self._made_claim: Json | None = None

    # -- a new cluster ---------------------------------------------------------------------------

    async def start(self, on_phase: OnPhase) -> None:
        check_options(self._spec)
        try:
            async with asyncio.timeout(self._spec.start_timeout_s):
                await self._start(on_phase)
        except TimeoutError:
            await self._take_back()
            raise BackendError(
                f"starting {self._n_workers} pods took longer than "
                f"{self._spec.start_timeout_s:.0f} s; `%cluster doctor kube` checks what is missing"
            ) from None
        except BaseException:
            # Pods of an image that can't be pulled would stay for a minute, and fill a quota.
            await asyncio.shield(self._take_back())
            raise
        finally:
            await self._be_silent()

    async def _start(self, on_phase: OnPhase) -> None:
        api = await self._connected()
        on_phase(f"asking {api.server} for pods in namespace {api.namespace}")
        await check_access(api)
        await self._refuse_second(api)
        self._made_claim = await make_claim(api, self._settings, names.user_name())
        cluster = await self._create(api)
        on_phase(self._where_runs_lie())
        watch = PodWatch(api, cluster, self._n_workers, on_phase)
        await watch.until_scheduler_serves(self._try_talk)
        await watch.until_workers_serve(self._n_connected)
        await self._record_image(api)
        await self._probe_policy(watch.scheduler_host, on_phase)

    def _where_runs_lie(self) -> str:
        claim, _ = claim_of(self._settings, names.user_name())
        if not claim:
            return "runs lie in the pod and are copied here; --home pvc keeps them when it is lost"
        made = "" if self._made_claim is None else ", which is new and stays when the cluster ends"
        return f"runs lie on claim {claim}{made}"

    async def _refuse_second(self, api: KubeApi) -> None:
        name = self._spec.name
        for found in await living_clusters(api, name):
            raise ClusterError(
                f"a cluster named {name!r} is there: DaskCluster {_name(found)} in namespace "
                f"{api.namespace}; `%cluster attach {name}` uses it, `%cluster stop {name}` ends "
                f"it, --name starts another one"
            )

    async def _create(self, api: KubeApi) -> Json:
        spec = self._spec
        name, user = names.object_name(spec.name), names.user_name()
        account = await check_account(api, self._settings.service_account)
        body = manifest.dask_cluster(
            spec,
            name,
            api.namespace,
            user=user,
            n_workers=self._n_workers,
            account=account or f"{name}-{manifest.CONTROLLER}",
            environ=manifest.passed_on(os.environ),
        )
        if self._settings.pod_template is not None:
            await check_cluster(api, body)
        cluster = await self._create_cluster(api, body)
        keys = self._keys = port_keys()
        await asyncio.gather(
            *(api.create(resource, part) for resource, part in self._belongings(keys, cluster)),
            *([] if account else [_create_account(api, cluster)]),
            _guard(api, cluster, spec),
        )
        return cluster

    async def _create_cluster(self, api: KubeApi, body: Json) -> Json:
        # Taken back by its name as well: whoever is interrupted here has no answer, and a cluster.
        self._cluster = body
        try:
            cluster = self._cluster = await api.create("daskclusters", body)
        except BackendError as error:
            if 400 <= error.status < 500:
                self._cluster = None  # it was refused, so there is nothing to take back
            raise
        return cluster

    def _belongings(self, keys: PortKeys, cluster: Json) -> list[tuple[str, Json]]:
        security = temporary_security()
        files = {**keys.files(), SPEC_FILE: msgspec.json.encode(self._spec).decode()}
        return [
            (
                "secrets",
                belongings.tls_secret(cluster, security.tls_ca_file, security.tls_scheduler_key),
            ),
            ("secrets", belongings.controller_secret(cluster, files)),
            ("networkpolicies", belongings.network_policy(cluster)),
        ]

    async def _try_talk(self, is_ready: bool) -> bool:
        """Whether the controller answers; ``is_ready`` is what Kubernetes says of its pod."""
        await self._be_silent()
        try:
            link = Link(self._spec.name, *await self._open(may_forward=is_ready))
            self._link = link
            await self._look(link)
        except JupyterDDLError as error:
            log.info("the controller does not serve yet: %s", error.message)
            return False
        return True

    async def _n_connected(self) -> int:
        """How many workers the controller has."""
        if self._link is None:
            await self._try_talk(True)
            return len(self._workers)
        try:
            await self._look(self._link)
        except JupyterDDLError as error:
            log.warning("%s; another connection is tried", error.message)
            await self._be_silent()
        return len(self._workers)

    async def _look(self, link: Link) -> None:
        result = await link.request(GetStatus(), _ANSWER_S)
        if isinstance(result, StatusResult):
            self._workers = result.status.workers

    async def _be_silent(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            await link.close()

    async def _record_image(self, api: KubeApi) -> None:
        """Write down which image it was: what a tag means may change."""
        name = _name(self._started()[1])
        reference = str(self._settings.image)
        pods = await api.list("pods", labelSelector=f"{names.DASK_LABEL}={name}")
        image = image_digest(pods, reference)
        if image:
            log.info("image %s is %s", reference, image)
            note = {"metadata": {"annotations": {names.IMAGE_ANNOTATION: image}}}
            await api.patch("daskclusters", name, note)

    async def _probe_policy(self, scheduler_host: str, on_phase: OnPhase) -> None:
        """Say so when the cluster's NetworkPolicy has no effect."""
        address = next((each.address for each in self._workers), None)
        if address is None or await is_policy_enforced(scheduler_host, address) is not False:
            return
        text = "this Kubernetes does not enforce network policies: other pods can reach the workers"
        log.warning("%s", text)
        on_phase(text)

    async def _take_back(self) -> None:
        """Delete what was made for nothing, and wait for the end of its pods."""
        try:
            await self.end()
        except ClusterError as error:
            log.error("what was started is not deleted: %s", error.message)
        if self._api is not None and self._made_claim is not None:
            await forget_claim(self._api, self._made_claim)

    # -- a cluster that is there -----------------------------------------------------------------

    async def join(self) -> ClusterSpec | None:
        api = await self._connected()
        found = await living_clusters(api, self._spec.name)
        if not found:
            return None
        cluster = max(found, key=lambda each: str(each["metadata"]["creationTimestamp"]))
        files = await self._secret(api, _name(cluster))
        self._cluster, self._keys = cluster, PortKeys.of_files(files)
        spec = _spec_of(files, _name(cluster))
        self._settings = kube_settings(spec)
        return spec

    async def _secret(self, api: KubeApi, cluster: str) -> dict[str, str]:
        name = f"{cluster}-{manifest.CONTROLLER}"
        try:
            secret = await api.get("secrets", name)
        except BackendError as error:
            if error.status != 404:
                raise
            raise ClusterError(
                f"DaskCluster {cluster} has no Secret {name}, which opens its controller's port; "
                f"if it is not just being started, `%cluster stop {self._spec.name}` ends it"
            ) from None
        data: dict[str, str] = secret.get("data") or {}
        return {key: base64.b64decode(text).decode() for key, text in data.items()}

    async def connect(self) -> Streams:
        return await self._open(may_forward=True)

    async def _open(self, *, may_forward: bool) -> Streams:
        api, cluster = self._started()
        if self._keys is None:
            raise ClusterError(f"the keys of {_name(cluster)} are not known")
        if self._way is None:
            self._way = Route(api, f"{_name(cluster)}-scheduler", manifest.CONTROLLER_PORT)
        way = self._way
        place = await way.place(may_forward=may_forward)
        if place is None:
            raise ClusterError(f"the pod of {_name(cluster)} can't be reached")
        try:
            async with asyncio.timeout(_CONNECT_S):
                return await asyncio.open_connection(*place, ssl=self._keys.client_context())
        except (OSError, TimeoutError) as error:
            # A port that was forwarded to a pod which is no more stays open, and leads nowhere.
            await way.close()
            raise ClusterError(f"no connection at {place[0]}:{place[1]}: {error!r}") from None

    async def missing(self) -> str:
        api, cluster = self._started()
        try:
            found = await api.get("daskclusters", _name(cluster))
        except ClusterError as error:
            is_gone = isinstance(error, BackendError) and error.status == 404
            return f"DaskCluster {_name(cluster)} is gone" if is_gone else ""
        if found["metadata"]["uid"] != cluster["metadata"]["uid"]:
            return f"DaskCluster {_name(cluster)} is another one by now"
        return f"DaskCluster {_name(cluster)} is being deleted" if is_ending(found) else ""

    @property
    def keeps_runs(self) -> bool:
        return self._settings.home is not None

    @property
    def place(self) -> str:
        api, _ = self._started()
        return f"namespace {api.namespace} of {api.server}"

    async def reachable(self, address: str) -> str:
        api, cluster = self._started()
        if self._way_to_dask is None:
            self._way_to_dask = Route(api, f"{_name(cluster)}-scheduler", manifest.COMM_PORT)
        place = await self._way_to_dask.place(may_forward=True)
        if place is None:
            raise ClusterError(f"the scheduler of {_name(cluster)} can't be reached from here")
        return f"tls://{bracketed(place[0])}:{place[1]}"

    # -- the end ---------------------------------------------------------------------------------

    async def end(self) -> None:
        if self._cluster is None:
            return
        api, cluster = self._started()
        try:
            async with asyncio.timeout(_CLOSE_S):
                await end_cluster(api, _name(cluster))
        except TimeoutError:
            raise BackendError(
                f"DaskCluster {_name(cluster)} was to be deleted, and is not known to be gone "
                f"after {_CLOSE_S:.0f} s; `%cluster list` tells whether it is there"
            ) from None
        try:
            async with asyncio.timeout(_SEE_OFF_S):
                await see_off(api, _name(cluster))
        except (BackendError, TimeoutError) as error:
            log.info("pods of %s end later than this: %r", _name(cluster), error)

    async def close(self) -> None:
        await self._be_silent()
        for way in (self._way, self._way_to_dask):
            if way is not None:
                await way.close()
        if self._api is not None:
            await self._api.aclose()

    async def _connected(self) -> KubeApi:
        if self._api is None:
            self._api = await KubeApi.connect(self._settings.namespace)
        return self._api

    def _started(self) -> tuple[KubeApi, Json]:
        if self._api is None or self._cluster is None:
            raise ClusterError("no cluster was started or joined")
        return self._api, self._cluster


async def _create_account(api: KubeApi, cluster: Json) -> None:
    """What the controller acts as, where the namespace has no account for controllers."""
    rules = rules_for(_name(cluster))
    for resource, part in belongings.own_account(cluster, rules).items():
        await api.create(resource, part)


async def _guard(api: KubeApi, cluster: Json, spec: ClusterSpec) -> None:
    """Have Kubernetes itself end the cluster some day, where that is allowed."""
    try:
        job = await api.create("jobs", belongings.last_resort(cluster, spec))
    except BackendError as error:
        if error.status != 403:
            raise
        log.info("nothing but operator and controller ends the cluster: %s", error.message)
        return
    owner = {"metadata": {"ownerReferences": [belongings.owned_by(job)]}}
    await api.patch("daskclusters", _name(cluster), owner)


def _spec_of(files: dict[str, str], cluster: str) -> ClusterSpec:
    try:
        return from_json(files.get(SPEC_FILE, "").encode(), ClusterSpec)
    except msgspec.DecodeError as error:
        raise ClusterError(
            f"DaskCluster {cluster} was started by another version of jupyter_ddl, which says of "
            f"it what this one can't read ({error}); use that version"
        ) from None


def _name(cluster: Json) -> str:
    return str(cluster["metadata"]["name"])
