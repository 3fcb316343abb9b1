"""Checks everything that a cluster needs before one is started; creates nothing."""

from __future__ import annotations

from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeAlias

import msgspec

from jupyter_ddl.cluster.kubernetes import manifest, names
from jupyter_ddl.cluster.kubernetes.access import role_manifest
from jupyter_ddl.cluster.kubernetes.api import KubeApi
from jupyter_ddl.cluster.kubernetes.operator import operator_deployment, start_or_restart
from jupyter_ddl.cluster.kubernetes.preflight import check_cluster, missing_access
from jupyter_ddl.errors import ClusterError, KubernetesError
from jupyter_ddl.spec.cluster import ClusterSpec

__all__ = ["Finding", "examine", "examine_operator", "rbac_text"]

Verdict: TypeAlias = Literal["ok", "broken", "unknown"]
Json = dict[str, Any]
_PATIENCE_S = 3.0
_IGNORED = timedelta(minutes=1)


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at."""

    what: str
    verdict: Verdict
    text: str = ""


async def examine(spec: ClusterSpec) -> list[Finding]:
    """Findings in the order in which a start needs the things; the first broken one ends it."""
    try:
        api = await KubeApi.connect(spec.kubernetes.namespace, patience_s=_PATIENCE_S)
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
    except KubernetesError as error:
        return [*findings, Finding("operator", "broken", error.message)]
    findings.append(Finding("resources", "ok", "DaskCluster is known"))
    findings.append(await _dry_run(api, spec))
    findings.append(await examine_operator(api, clusters))
    return findings


async def _dry_run(api: KubeApi, spec: ClusterSpec) -> Finding:
    if spec.kubernetes.image is None:
        return Finding("image", "broken", "not known; name one with --env IMAGE")
    body = manifest.dask_cluster(
        spec,
        names.object_name(spec.name),
        api.namespace,
        user=names.user_name(),
        n_workers=1,
        annotations={},
    )
    try:
        await check_cluster(api, body)
    except KubernetesError as error:
        return Finding("cluster", "broken", error.message)
    return Finding("cluster", "ok", f"would be taken, with image {spec.kubernetes.image}")


async def examine_operator(api: KubeApi, clusters: list[Json]) -> Finding:
    """The operator lives in another namespace, perhaps, which these credentials may not see."""
    try:
        deployment = operator_deployment(await api.list("pods"))
    except KubernetesError:
        deployment = None
    ignored = [each["metadata"]["name"] for each in clusters if _is_ignored(each)]
    if ignored:
        mend = start_or_restart(deployment or "", api.namespace)
        text = f"nobody has acted on DaskCluster {ignored[0]} for a minute; {mend}"
        return Finding("operator", "broken", text)
    if deployment is not None:
        named = f", deployment {deployment}" if deployment else ""
        return Finding("operator", "ok", f"runs in namespace {api.namespace}{named}")
    return Finding("operator", "unknown", "not to be seen from here; a start tells within 30 s")


def _is_ignored(cluster: Json) -> bool:
    """Whether the operator, which says at once that it has begun, has not in a minute."""
    if cluster.get("status", {}).get("phase"):
        return False
    made = datetime.fromisoformat(cluster["metadata"]["creationTimestamp"])
    return datetime.now(UTC) - made > _IGNORED


async def rbac_text(namespace: str | None) -> str:
    """The Role and the namespace it is for."""
    if namespace is None:
        try:
            async with aclosing(await KubeApi.connect(patience_s=0.0)) as api:
                namespace = api.namespace
        except ClusterError:
            namespace = "default"
    return role_manifest(namespace)
