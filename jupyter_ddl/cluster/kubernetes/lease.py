"""Where the controller runs, for who finds its clusters later; and whether it still does."""

from __future__ import annotations

import os
from typing import Any

from jupyter_ddl.cluster.kubernetes.api import KubeApi
from jupyter_ddl.cluster.kubernetes.inside import in_pod, own_namespace
from jupyter_ddl.cluster.kubernetes.names import HOST_ANNOTATION, OWNER_ANNOTATION
from jupyter_ddl.errors import KubernetesError
from jupyter_ddl.store.processes import ProcessIdentity, boot_id, is_alive, this_process

__all__ = ["controller_annotations", "is_orphan", "own_pod"]

Json = dict[str, Any]


def controller_annotations() -> dict[str, str]:
    """What the DaskCluster says about this process."""
    process = this_process()
    return {
        OWNER_ANNOTATION: f"{process.pid}:{process.started_at_s:.2f}",
        HOST_ANNOTATION: process.boot_id,
    }


def is_orphan(cluster: Json) -> bool:
    """Whether a cluster's controller ran on this host and is gone.

    Of another host's nothing is known here: its lease decides.
    """
    notes = cluster["metadata"].get("annotations", {})
    pid, _, started = str(notes.get(OWNER_ANNOTATION, "")).partition(":")
    if notes.get(HOST_ANNOTATION) != boot_id() or in_pod():
        return False  # pods share a boot id, and have pids of their own
    try:
        return not is_alive(ProcessIdentity(int(pid), float(started), boot_id()))
    except ValueError:
        return False


async def own_pod(api: KubeApi) -> Json | None:
    """Owner reference to the pod that this process runs in, if it may own something here."""
    if own_namespace() != api.namespace:
        return None  # an owner in another namespace would have its property deleted
    name = os.environ.get("POD_NAME") or os.environ.get("HOSTNAME", "")
    try:
        pod = await api.get("pods", name)
    except KubernetesError:
        return None
    return {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": pod["metadata"]["uid"]}
