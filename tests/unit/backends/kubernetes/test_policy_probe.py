"""A network that ignores policies is told of when a cluster of pods starts."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from jupyter_ddl.backends.kubernetes import route
from jupyter_ddl.backends.kubernetes.backend import KubeBackend
from jupyter_ddl.protocol.cluster import ClusterSpec

_HOST = "127.0.0.1"


class Scheduler:
    def __init__(self, worker: str) -> None:
        self.scheduler = self
        self._worker = worker

    async def identity(self, n_workers: int) -> Any:
        assert n_workers == -1, "no more than five are told of without it"
        return {"workers": {self._worker: {}} if self._worker else {}}


@pytest.fixture
def served() -> Iterator[int]:
    with socket.create_server((_HOST, 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def closed() -> Iterator[int]:
    """A port that nobody serves and nobody else gets."""
    with socket.socket() as held:
        held.bind((_HOST, 0))
        yield held.getsockname()[1]


def told(monkeypatch: pytest.MonkeyPatch, scheduler: int, worker: int | None) -> list[str]:
    monkeypatch.setattr(route, "COMM_PORT", scheduler)
    backend: Any = KubeBackend(ClusterSpec(name="kube", backend="kube"))
    address = "" if worker is None else f"tls://{_HOST}:{worker}"
    backend.client = Scheduler(address)
    phases: list[str] = []
    asyncio.run(backend._probe_policy(_HOST, phases.append))
    return phases


def test_a_worker_that_answers_a_stranger_is_told_of(
    monkeypatch: pytest.MonkeyPatch, served: int
) -> None:
    (text,) = told(monkeypatch, served, served)
    assert text.startswith("this Kubernetes does not enforce network policies: other pods can")


def test_a_worker_out_of_reach_is_as_it_should_be(
    monkeypatch: pytest.MonkeyPatch, served: int, closed: int
) -> None:
    assert told(monkeypatch, served, closed) == []
    assert told(monkeypatch, served, None) == []


def test_from_where_no_pod_can_be_reached_nothing_is_known(
    monkeypatch: pytest.MonkeyPatch, served: int, closed: int
) -> None:
    assert told(monkeypatch, closed, served) == []
