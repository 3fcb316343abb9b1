"""An operator is found among the pods of a namespace, however it was installed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from jupyter_ddl.backends.kubernetes.diagnosis import operator_deployment
from jupyter_ddl.backends.kubernetes.doctor import examine_operator
from jupyter_ddl.errors import BackendError

Json = dict[str, Any]


def pod(name: str, container: Json, phase: str = "Running", **labels: str) -> Json:
    return {
        "metadata": {
            "name": f"{name}-5d9c7b-x2x4z",
            "labels": {"pod-template-hash": "5d9c7b", **labels},
            "ownerReferences": [{"kind": "ReplicaSet", "name": f"{name}-5d9c7b"}],
        },
        "spec": {"containers": [container]},
        "status": {"phase": phase},
    }


_HELM = pod(
    "release-1-dask-kubernetes-operator",
    {"image": "mirror.example/operator:1"},
    **{"app.kubernetes.io/name": "dask-kubernetes-operator"},
)
_MANIFEST = pod("mine", {"image": "ghcr.io/dask/dask-kubernetes-operator:2026.3.0"})
_OWN = pod("dask-operator", {"args": ["kopf", "run", "-m", "dask_kubernetes.operator"]})
_OTHER = pod("web", {"image": "nginx", "command": ["nginx"]})


@pytest.mark.parametrize(
    ("pods", "deployment"),
    [
        ([_OTHER, _HELM], "release-1-dask-kubernetes-operator"),
        ([_MANIFEST], "mine"),
        ([_OTHER, _OWN], "dask-operator"),
        ([_OTHER], None),
        ([], None),
        ([{**_OWN, "status": {"phase": "Pending"}}], None),
        ([{**_OWN, "metadata": {"name": "bare"}}], ""),
    ],
)
def test_its_deployment_is_named(pods: list[Json], deployment: str | None) -> None:
    assert operator_deployment(pods) == deployment


class _Api:
    namespace = "space"

    def __init__(self, pods: list[Json] | None) -> None:
        self._pods = pods

    async def list(self, _: str) -> list[Json]:
        if self._pods is None:
            raise BackendError("it is forbidden", status=403)
        return self._pods


_IGNORED = {"metadata": {"name": "old", "creationTimestamp": "2026-01-01T00:00:00Z"}}


@pytest.mark.parametrize(
    ("pods", "clusters", "verdict", "text"),
    [
        ([_OWN], [], "ok", "runs in namespace space, deployment dask-operator"),
        ([_OTHER], [], "unknown", "not visible from here"),
        (None, [], "unknown", "not visible from here"),
        (
            [_OWN],
            [_IGNORED],
            "broken",
            "`kubectl rollout restart deployment dask-operator -n space`",
        ),
        ([_OTHER], [_IGNORED], "broken", "`kubectl get deployments -A | grep dask` finds it"),
        (None, [_IGNORED], "broken", "no operator has acted on DaskCluster old for a minute"),
    ],
)
def test_the_doctor_says_what_to_restart(
    pods: list[Json] | None, clusters: list[Json], verdict: str, text: str
) -> None:
    found = asyncio.run(examine_operator(_Api(pods), clusters))  # type: ignore[arg-type]
    assert found.verdict == verdict
    assert text in found.text
