"""Whether a DaskCluster is gone, by what the API server says of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from jupyter_ddl.backends.kubernetes.host import KubeHost
from jupyter_ddl.errors import BackendError
from jupyter_ddl.protocol.cluster import ClusterSpec

CLUSTER = {"metadata": {"name": "kube-1", "uid": "a"}}


class Api:
    def __init__(self, answer: Any) -> None:
        self._answer = answer

    async def get(self, _resource: str, _name: str) -> Any:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (CLUSTER, ""),
        ({"metadata": {"name": "kube-1", "uid": "b"}}, "is another one by now"),
        ({"metadata": {**CLUSTER["metadata"], "deletionTimestamp": "now"}}, "is being deleted"),
        (BackendError("not found", status=404), "is gone"),
        (BackendError("forbidden", status=403), ""),
        (BackendError("no answer", status=0), ""),
    ],
    ids=["there", "another of its name", "ending", "deleted", "refused", "out of reach"],
)
def test_only_one_that_is_not_there_is_gone(answer: Any, why: str) -> None:
    host = KubeHost(ClusterSpec(name="kube", backend="kube"))
    host._api, host._cluster = Api(answer), CLUSTER  # type: ignore[assignment]
    assert asyncio.run(host.missing()) == (f"DaskCluster kube-1 {why}" if why else "")
