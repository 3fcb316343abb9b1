"""Whether a DaskCluster is gone, by what the API server says of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from jupyter_ddl.backends.kubernetes.backend import KubeBackend
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
    ("answer", "is_gone"),
    [
        (CLUSTER, False),
        ({"metadata": {"name": "kube-1", "uid": "b"}}, True),
        (BackendError("not found", status=404), True),
        (BackendError("forbidden", status=403), False),
        (BackendError("no answer", status=0), False),
    ],
    ids=["there", "another of its name", "deleted", "refused", "out of reach"],
)
def test_only_one_that_is_not_there_is_gone(answer: Any, is_gone: bool) -> None:
    backend = KubeBackend(ClusterSpec(name="kube", backend="kube"))
    backend._api, backend._cluster = Api(answer), CLUSTER  # type: ignore[assignment]
    asyncio.run(backend._look_for_cluster())
    assert bool(backend.gone) == is_gone
    assert not is_gone or "DaskCluster kube-1 was deleted" in backend.gone
