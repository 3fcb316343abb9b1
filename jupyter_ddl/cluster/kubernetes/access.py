"""The smallest Role with which all of this works, and what each of its verbs is for.  Pure."""

from __future__ import annotations

import msgspec

__all__ = ["NEEDS", "Need", "role_manifest"]

_DASK = "kubernetes.dask.org"
_FORWARD = "reach the scheduler from outside the cluster's network"


class Need(msgspec.Struct, frozen=True):
    """One thing that these credentials must be allowed to do in the namespace."""

    verb: str
    group: str
    resource: str
    purpose: str
    subresource: str = ""
    is_optional: bool = False
    """Without it a cluster starts all the same."""

    @property
    def full_resource(self) -> str:
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource

    @property
    def text(self) -> str:
        group = f".{self.group}" if self.group else ""
        return f"{self.verb} {self.full_resource}{group}"


NEEDS = (
    Need("create", _DASK, "daskclusters", "start a cluster"),
    Need("list", _DASK, "daskclusters", "`%cluster list`, and the end of lost clusters"),
    Need("get", _DASK, "daskclusters", "see whether the operator acts"),
    Need("patch", _DASK, "daskclusters", "`%cluster scale` and `adapt`"),
    Need("delete", _DASK, "daskclusters", "`%cluster stop`"),
    Need("delete", _DASK, "daskworkergroups", "`%cluster stop` while the cluster still starts"),
    Need("create", "", "secrets", "the certificate of the cluster's encrypted connections"),
    Need("create", "networking.k8s.io", "networkpolicies", "close the workers to other pods"),
    Need("get", "", "services", "the scheduler's address"),
    Need("list", "", "pods", "progress of the start, choice of workers to stop"),
    Need("list", "", "events", "say why a pod does not start"),
    Need("get", "", "pods", "the last lines of a pod that crashed", subresource="log"),
    Need("delete", "", "pods", "forget pods that have ended at a stop", is_optional=True),
    Need("get", "", "pods", "let the cluster end with the notebook's pod", is_optional=True),
    *(
        # A WebSocket begins with a GET; newer versions of Kubernetes ask for `create` as well.
        Need(verb, "", "pods", _FORWARD, subresource="portforward", is_optional=True)
        for verb in ("get", "create")
    ),
)


def role_manifest(namespace: str) -> str:
    """A Role and how to bind it, as YAML."""
    grouped: dict[tuple[str, str], list[Need]] = {}
    for need in NEEDS:
        grouped.setdefault((need.group, need.full_resource), []).append(need)
    lines = [
        "# What jupyter_ddl needs.  The operator makes pods of a DaskCluster, so who may create",
        "# one may create pods here: the namespace and its Pod Security level are the fence.",
        "apiVersion: rbac.authorization.k8s.io/v1",
        "kind: Role",
        "metadata:",
        "  name: jupyter-ddl",
        f"  namespace: {namespace}",
        "rules:",
    ]
    for (group, resource), needs in grouped.items():
        verbs = ", ".join(need.verb for need in needs)
        lines += [
            *(f"# {need.verb}: {need.purpose}" for need in needs),
            f'- apiGroups: ["{group}"]',
            f'  resources: ["{resource}"]',
            f"  verbs: [{verbs}]",
        ]
    return "\n".join(lines) + "\n"
