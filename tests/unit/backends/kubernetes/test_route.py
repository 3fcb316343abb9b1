"""The way to a pod through the API server, with no more rights than the printed Role gives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_ddl.backends.kubernetes.route import _listed_service

objects = pytest.importorskip("kr8s.asyncio.objects")


def pod(name: str, *, is_ready: bool = True, **metadata: Any) -> Any:
    ready = {"type": "Ready", "status": "True" if is_ready else "False"}
    metadata.update(name=name, namespace="team")
    return objects.Pod({"metadata": metadata, "status": {"conditions": [ready]}}, api=object())


def test_a_port_is_forwarded_to_a_pod_of_a_list_and_none_is_fetched() -> None:
    asked: list[tuple[str, str, str]] = []

    async def listed(kind: str, *, namespace: str, label_selector: str) -> AsyncIterator[Any]:
        asked.append((kind, namespace, label_selector))
        yield pod("ends", deletionTimestamp="2026-01-01T00:00:00Z")
        yield pod("begins", is_ready=False)
        yield pod("serves")

    service = _listed_service()(
        {
            "metadata": {"name": "demo-scheduler", "namespace": "team"},
            "spec": {
                "selector": {"dask.org/cluster-name": "demo", "dask.org/component": "scheduler"}
            },
        },
        namespace="team",
        api=SimpleNamespace(async_get=listed, namespace="team"),
    )
    found = asyncio.run(service.async_ready_pods())
    assert [each.name for each in found] == ["serves"]
    assert asked == [("pods", "team", "dask.org/cluster-name=demo,dask.org/component=scheduler")]
