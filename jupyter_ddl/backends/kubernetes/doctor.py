"""Checks everything that a cluster needs before one is started; creates nothing."""

from __future__ import annotations

import asyncio
import posixpath
import re
from collections.abc import Sequence
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import Any

from jupyter_ddl.backends.base import MAX_CPUS, Finding, check_size
from jupyter_ddl.backends.kubernetes import manifest, names
from jupyter_ddl.backends.kubernetes.access import NEEDS, Need, missing_access, role_manifest
from jupyter_ddl.backends.kubernetes.api import KubeApi
from jupyter_ddl.backends.kubernetes.diagnosis import operator_deployment, start_or_restart
from jupyter_ddl.backends.kubernetes.home_claim import check_home
from jupyter_ddl.backends.kubernetes.manifest import worker_pod
from jupyter_ddl.backends.kubernetes.names import SERVICE_ACCOUNT, check_dns_label
from jupyter_ddl.backends.kubernetes.node_watch import NodeWatch
from jupyter_ddl.backends.kubernetes.settings import KubeSettings, kube_settings
from jupyter_ddl.backends.kubernetes.spot import SpotPool
from jupyter_ddl.backends.kubernetes.template import check_mounts, dropped_fields
from jupyter_ddl.errors import BackendError, ClusterError
from jupyter_ddl.protocol.cluster import ClusterSpec

__all__ = [
    "check_access",
    "check_account",
    "check_cluster",
    "check_options",
    "examine",
    "examine_nodes",
    "examine_operator",
    "rbac_text",
]


# What is checked before anything is created.

_MAX_GPUS = 64
_SECRET_KEY = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?:[A-Za-z0-9._-]{1,253}")
_VOLUME = re.compile(r"(pvc|configmap|secret):[a-z0-9][a-z0-9.-]*:/.+")
_OWN_PLACES = ("/tmp", "/dev/shm", "/etc/jupyter-ddl/tls")
"""Where our pods mount volumes themselves."""
_TOLERATION = re.compile(
    r"[A-Za-z0-9][\w./-]*(=[\w.-]*)?(:(NoSchedule|PreferNoSchedule|NoExecute))?", re.ASCII
)
_PRIORITY = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
_LABEL_KEY = re.compile(
    r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?", re.ASCII
)
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?)?", re.ASCII)
_OF_ACCOUNT = (
    ("", "serviceaccounts"),
    ("rbac.authorization.k8s.io", "roles"),
    ("rbac.authorization.k8s.io", "rolebindings"),
)
_MIN_LEASE_S = 5.0
_MAX_LEASE_S = 86400.0
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def check_options(spec: ClusterSpec) -> None:
    """Refuse what Kubernetes would refuse later, or take and never schedule.

    Raises
    ------
    ClusterError
        Names the option, the value, and what is expected.
    """
    kube = kube_settings(spec)
    check_dns_label("cluster name", spec.name)
    if kube.namespace is not None:
        check_dns_label("namespace", kube.namespace)
    check_size(spec)
    if not 1 <= kube.slots <= MAX_CPUS:
        raise ClusterError(f"--slots {kube.slots}: expected 1 to {MAX_CPUS}")
    _check_pods(kube)
    if kube.pod_template is not None:
        check_mounts(worker_pod(spec, "name", "namespace"))


def _check_pods(kube: KubeSettings) -> None:
    if kube.image is None:
        raise ClusterError("no image was chosen for the pods; name one with --env IMAGE")
    if not 0 <= kube.gpus <= _MAX_GPUS:
        raise ClusterError(
            f"--gpus {kube.gpus}: expected 0 to {_MAX_GPUS}; --gpus is the number for each worker, "
            "-n the number of workers"
        )
    for text in kube.volumes:
        if not _VOLUME.fullmatch(text):
            raise ClusterError(
                f"--volume {text!r}: expected KIND:NAME:/path; KIND is pvc, configmap or secret"
            )
    _check_places([text.split(":", 2)[2] for text in kube.volumes])
    pool = kube.spot or SpotPool()
    for text in (*kube.tolerations, *pool.tolerations):
        if not _TOLERATION.fullmatch(text):
            raise ClusterError(
                f"--toleration {text!r}: expected KEY=VALUE:EFFECT, KEY:EFFECT or KEY; EFFECT "
                f"is NoSchedule, PreferNoSchedule or NoExecute"
            )
    for key, value in (*kube.node_selector.items(), *pool.node_selector.items()):
        if not _LABEL_KEY.fullmatch(key) or not _LABEL_VALUE.fullmatch(value):
            raise ClusterError(
                f"--node-selector {f'{key}={value}'!r} can't be a label of nodes; expected up to "
                "63 letters, digits, - _ and . on both sides of ="
            )
    if kube.priority is not None and not _PRIORITY.fullmatch(kube.priority):
        raise ClusterError(
            f"--priority {kube.priority!r} can't be the name of a PriorityClass; expected "
            "lowercase letters, digits, - and ."
        )
    if not _MIN_LEASE_S <= kube.lease_s <= _MAX_LEASE_S:
        raise ClusterError(f"--lease is {kube.lease_s:.0f} s; expected 5 s to 24 h")
    check_home(kube)
    if kube.service_account is not None:
        check_dns_label("--service-account", kube.service_account)
    for name in kube.env:
        if not _VARIABLE.fullmatch(name):
            raise ClusterError(
                f"--set-env {name!r} is not the name of a variable; expected NAME=VALUE"
            )
    for name, text in kube.secret_env.items():
        # The text may be the secret itself, given by mistake: it is not repeated.
        if not _VARIABLE.fullmatch(name) or not _SECRET_KEY.fullmatch(text):
            raise ClusterError(
                f"--secret-env {name}=…: expected NAME=SECRET:KEY, a Secret of the namespace and "
                f"one of its keys"
            )
        if name in kube.env:
            raise ClusterError(f"--set-env and --secret-env both set {name}; leave one out")


def _check_places(paths: list[str]) -> None:
    """Kubernetes itself would refuse them of a pod, when there is a cluster already."""
    taken = {"/", *_OWN_PLACES}
    for path in paths:
        place = posixpath.normpath(path)
        if ".." in path.split("/") or ":" in path:
            raise ClusterError(f"--volume …:{path}: expected a path without : and ..")
        if place in taken:
            why = "two volumes" if place not in ("/", *_OWN_PLACES) else "pods have their own"
            raise ClusterError(f"--volume …:{path}: {why} at {place}; choose another path")
        taken.add(place)


async def check_cluster(api: KubeApi, cluster: dict[str, Any]) -> None:
    """Have a DaskCluster examined, and refuse it where some of it would be left out.

    Raises
    ------
    BackendError
        Names the fields that Kubernetes refuses, or does not know.
    """
    taken = await api.create("daskclusters", cluster, is_dry_run=True)
    unknown = sorted(set(dropped_fields(cluster["spec"]["worker"], taken["spec"]["worker"], "")))
    if unknown:
        listed = ", ".join(field.removeprefix(".") for field in unknown[:5])
        raise BackendError(
            f"this Kubernetes would drop {listed} from the workers: its DaskCluster does not "
            "have these fields; correct --pod-template, or remove them"
        )


async def check_access(api: KubeApi, needs: Sequence[Need] = NEEDS, cluster: str = "") -> None:
    """Refuse to begin what these credentials could not end.

    Parameters
    ----------
    needs, cluster
        As :func:`~jupyter_ddl.backends.kubernetes.access.missing_access` takes them.

    Raises
    ------
    BackendError
        Names what is not allowed, and the namespace.
    """
    missing = [need for need in await missing_access(api, needs, cluster) if not need.is_optional]
    if missing:
        listed = ", ".join(need.text for need in missing)
        raise BackendError(
            f"these credentials may not {listed} in namespace {api.namespace}; "
            f"`%cluster doctor kube --print-rbac` prints the Role that it takes"
        )


async def check_account(api: KubeApi, wanted: str | None) -> str:
    """The service account that the controller is to have; empty: one is to be made for it.

    Parameters
    ----------
    wanted : str or None
        The one that was asked for.

    Raises
    ------
    BackendError
        The one that was asked for is not there, or there is none and none may be made.
    """
    if await _has_account(api, wanted or SERVICE_ACCOUNT):
        return wanted or SERVICE_ACCOUNT
    if wanted is not None:
        raise BackendError(
            f"--service-account {wanted}: namespace {api.namespace} has no such account; leave it "
            f"out, or have it made"
        )
    may = await asyncio.gather(*(api.may("create", group, kind) for group, kind in _OF_ACCOUNT))
    lacking = [
        kind for (_, kind), is_allowed in zip(_OF_ACCOUNT, may, strict=True) if not is_allowed
    ]
    if lacking:
        raise BackendError(
            f"namespace {api.namespace} has no service account {SERVICE_ACCOUNT} for controllers, "
            f"and these credentials may not create {', '.join(lacking)}; have an administrator "
            f"apply what `%cluster doctor kube --print-rbac` prints"
        )
    return ""


async def _has_account(api: KubeApi, name: str) -> bool:
    try:
        await api.get("serviceaccounts", name)
    except BackendError as error:
        if error.status == 404:
            return False
        raise
    return True


Json = dict[str, Any]
_PATIENCE_S = 3.0
_IGNORED = timedelta(minutes=1)


async def examine(spec: ClusterSpec) -> list[Finding]:
    """Findings in the order in which a start needs the things; the first broken one ends it."""
    try:
        api = await KubeApi.connect(kube_settings(spec).namespace, patience_s=_PATIENCE_S)
    except ClusterError as error:
        return [Finding("API server", "broken", error.message)]
    async with aclosing(api):
        return await _examine(api, spec)


async def _examine(api: KubeApi, spec: ClusterSpec) -> list[Finding]:
    findings: list[Finding] = []
    try:
        missing = await missing_access(api)
    except ClusterError as error:
        return [Finding("API server", "broken", error.message)]
    where = f"namespace {api.namespace}"
    findings.append(Finding("API server", "ok", f"{api.server} answers"))
    needed = [need.text for need in missing if not need.is_optional]
    wished = [f"{need.text} ({need.purpose})" for need in missing if need.is_optional]
    if needed:
        text = f"not allowed in {where}: {', '.join(needed)}; --print-rbac prints the Role"
        return [*findings, Finding("access", "broken", text)]
    text = f"not allowed, and not always needed: {', '.join(wished)}" if wished else ""
    findings.append(Finding("access", "ok", text or f"everything needed is allowed in {where}"))
    try:
        clusters = await api.list("daskclusters")
    except BackendError as error:
        return [*findings, Finding("operator", "broken", error.message)]
    findings.append(Finding("resources", "ok", "DaskCluster is known"))
    findings.append(await _examine_account(api, kube_settings(spec).service_account))
    findings.append(await _dry_run(api, spec))
    if kube_settings(spec).spot is not None:
        findings.append(await examine_nodes(api))
    findings.append(await examine_operator(api, clusters))
    return findings


async def _dry_run(api: KubeApi, spec: ClusterSpec) -> Finding:
    if kube_settings(spec).image is None:
        return Finding("image", "broken", "not known; name one with --env IMAGE")
    body = manifest.dask_cluster(
        spec,
        names.object_name(spec.name),
        api.namespace,
        user=names.user_name(),
        n_workers=1,
    )
    try:
        await check_cluster(api, body)
    except BackendError as error:
        return Finding("cluster", "broken", error.message)
    return Finding("cluster", "ok", f"would be accepted, with image {kube_settings(spec).image}")


async def _examine_account(api: KubeApi, wanted: str | None) -> Finding:
    try:
        account = await check_account(api, wanted)
    except BackendError as error:
        return Finding("controller", "broken", error.message)
    text = f"acts as service account {account}" if account else "gets a service account of its own"
    return Finding("controller", "ok", text)


async def examine_nodes(api: KubeApi) -> Finding:
    """Whether the end of a spot machine is seen before its pods are told to go."""
    if await NodeWatch(api).may_look():
        return Finding("nodes", "ok", "their notices are seen, and workers leave in time")
    text = "their notices can't be read: ranks save at SIGTERM; docs/kubernetes.md has the rights"
    return Finding("nodes", "unknown", text)


async def examine_operator(api: KubeApi, clusters: list[Json]) -> Finding:
    """The operator lives in another namespace, perhaps, which these credentials may not see."""
    try:
        deployment = operator_deployment(await api.list("pods"))
    except BackendError:
        deployment = None
    ignored = [each["metadata"]["name"] for each in clusters if _is_ignored(each)]
    if ignored:
        fix = start_or_restart(deployment or "", api.namespace)
        text = f"no operator has acted on DaskCluster {ignored[0]} for a minute; {fix}"
        return Finding("operator", "broken", text)
    if deployment is not None:
        named = f", deployment {deployment}" if deployment else ""
        return Finding("operator", "ok", f"runs in namespace {api.namespace}{named}")
    return Finding("operator", "unknown", "not visible from here; a start finds out within 30 s")


def _is_ignored(cluster: Json) -> bool:
    """Whether the operator, which says at once that it has begun, has not in a minute."""
    if cluster.get("status", {}).get("phase"):
        return False
    made = datetime.fromisoformat(cluster["metadata"]["creationTimestamp"])
    return datetime.now(UTC) - made > _IGNORED


async def rbac_text(namespace: str | None) -> str:
    """The Roles of notebooks and controllers, and the namespace they are for."""
    if namespace is None:
        try:
            async with aclosing(await KubeApi.connect(patience_s=0.0)) as api:
                namespace = api.namespace
        except ClusterError:
            namespace = "default"
    return role_manifest(namespace)
