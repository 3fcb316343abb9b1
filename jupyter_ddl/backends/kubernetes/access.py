"""What has to be allowed: to whoever starts clusters, and to their controllers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from jupyter_ddl.backends.kubernetes.api import KubeApi
from jupyter_ddl.backends.kubernetes.names import SERVICE_ACCOUNT

__all__ = [
    "CONTROLLER_NEEDS",
    "NEEDS",
    "Need",
    "missing_access",
    "role_manifest",
    "rules_for",
]

_DASK_GROUP = "kubernetes.dask.org"
_CLUSTERS, _GROUPS = "daskclusters", "daskworkergroups"
_CLAIMS = "persistentvolumeclaims"
_FORWARD = "reach the controller from outside the cluster's network"

Json = dict[str, Any]


class Need(msgspec.Struct, frozen=True):
    """One thing that must be allowed in the namespace."""

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
    Need("create", _DASK_GROUP, _CLUSTERS, "start a cluster"),
    Need("list", _DASK_GROUP, _CLUSTERS, "`%cluster list`, and finding one by its name"),
    Need("get", _DASK_GROUP, _CLUSTERS, "see whether the operator acts"),
    Need("patch", _DASK_GROUP, _CLUSTERS, "have the operator look at a cluster that ends"),
    Need("delete", _DASK_GROUP, _CLUSTERS, "`%cluster stop`"),
    Need("delete", _DASK_GROUP, _GROUPS, "`%cluster stop` while the cluster still starts"),
    Need("create", "", "secrets", "the keys of the cluster's encrypted connections"),
    Need("get", "", "secrets", "the key of a cluster that was started before, or elsewhere"),
    Need("create", "networking.k8s.io", "networkpolicies", "close the workers to other pods"),
    Need("get", "", "services", "the controller's address"),
    Need("get", "", "serviceaccounts", "see which one controllers have here"),
    Need("list", "", "pods", "progress of the start"),
    Need("list", "", "events", "say why a pod does not start"),
    Need("get", "", "pods", "the last lines of a pod that crashed", subresource="log"),
    Need("create", "batch", "jobs", "have Kubernetes end what nobody else can", is_optional=True),
    Need("delete", "", "pods", "forget pods that have ended at a stop", is_optional=True),
    Need("create", "", _CLAIMS, "`--home pvc`", is_optional=True),
    Need("delete", "", _CLAIMS, "take back one that a refused start has made", is_optional=True),
    *(
        # A WebSocket begins with a GET; newer versions of Kubernetes ask for `create` as well.
        Need(verb, "", "pods", _FORWARD, subresource="portforward", is_optional=True)
        for verb in ("get", "create")
    ),
)
"""Of the notebook's credentials."""

CONTROLLER_NEEDS = (
    Need("get", _DASK_GROUP, _CLUSTERS, "its cluster's age, and whether it is there"),
    Need("patch", _DASK_GROUP, _CLUSTERS, "note its size; have the operator look at its end"),
    Need("delete", _DASK_GROUP, _CLUSTERS, "end it: when it is idle, or too old"),
    Need("patch", _DASK_GROUP, _GROUPS, "`%cluster scale` and `adapt`"),
    Need("delete", _DASK_GROUP, _GROUPS, "end it while it still starts"),
    Need("list", "", "pods", "choice of workers to stop, pods that are missing"),
    Need("list", "", "events", "say why a pod does not start"),
    Need("get", "", "pods", "the last lines of a pod that crashed", subresource="log"),
    Need("delete", "", "pods", "leave a node that announces its end", is_optional=True),
)
"""Of the controller's service account."""


async def missing_access(
    api: KubeApi, needs: Sequence[Need] = NEEDS, cluster: str = ""
) -> list[Need]:
    """What of ``needs`` is not allowed.

    Parameters
    ----------
    cluster : str
        Name of the one DaskCluster that they are about; empty: of any.
    """
    allowed = await asyncio.gather(
        *(
            api.may(
                need.verb, need.group, need.resource, need.subresource, name=_name(need, cluster)
            )
            for need in needs
        )
    )
    return [need for need, is_allowed in zip(needs, allowed, strict=True) if not is_allowed]


def _name(need: Need, cluster: str) -> str:
    """The object of a cluster that a need is about; empty: it is about others, too."""
    if not cluster or need.group != _DASK_GROUP:
        return ""
    return f"{cluster}-default" if need.resource == _GROUPS else cluster


def _grouped(needs: Iterable[Need]) -> dict[tuple[str, str], list[Need]]:
    found: dict[tuple[str, str], list[Need]] = {}
    for need in needs:
        found.setdefault((need.group, need.full_resource), []).append(need)
    return found


def rules_for(cluster: str) -> list[Json]:
    """The rules of the controller of one cluster: of its own objects, where names can be told."""
    rules: list[Json] = []
    for (group, resource), needs in _grouped(CONTROLLER_NEEDS).items():
        rule: Json = {"apiGroups": [group], "resources": [resource]}
        rule["verbs"] = [need.verb for need in needs]
        if name := _name(needs[0], cluster):
            rule["resourceNames"] = [name]
        rules.append(rule)
    return rules


_ROLE = """\
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {name}
  namespace: {namespace}
rules:"""

_ACCOUNT = f"""\
# Of controllers, which run in pods of their clusters: no other pod has this account's token.
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {SERVICE_ACCOUNT}
  namespace: {{namespace}}
automountServiceAccountToken: false
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {SERVICE_ACCOUNT}
  namespace: {{namespace}}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {SERVICE_ACCOUNT}
subjects:
- kind: ServiceAccount
  name: {SERVICE_ACCOUNT}
  namespace: {{namespace}}
---"""


def role_manifest(namespace: str) -> str:
    """Both Roles, and the controllers' service account, as YAML; the first Role is to be bound."""
    lines = [
        "# What jupyter_ddl needs.  The operator makes pods of a DaskCluster, so who may create",
        "# one may create pods here: the namespace and its Pod Security level are the fence.",
        _ROLE.format(name="jupyter-ddl", namespace=namespace),
        *_rules(NEEDS),
        "---",
        _ACCOUNT.format(namespace=namespace),
        _ROLE.format(name=SERVICE_ACCOUNT, namespace=namespace),
        *_rules(CONTROLLER_NEEDS),
    ]
    return "\n".join(lines) + "\n"


def _rules(needs: Iterable[Need]) -> list[str]:
    lines: list[str] = []
    for (group, resource), same in _grouped(needs).items():
        lines += [
            *(f"# {need.verb}: {need.purpose}" for need in same),
            f'- apiGroups: ["{group}"]',
            f'  resources: ["{resource}"]',
            f"  verbs: [{', '.join(need.verb for need in same)}]",
        ]
    return lines
