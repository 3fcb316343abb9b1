"""A network that ignores policies is told of when a cluster of pods starts."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest

from jupyter_ddl.backends.kubernetes import route
from jupyter_ddl.backends.kubernetes.host import KubeHost
from jupyter_ddl.protocol.cluster import ClusterSpec
from jupyter_ddl.protocol.replies import WorkerStatus

_HOST = "127.0.0.1"


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
    host = KubeHost(ClusterSpec(name="kube", backend="kube"))
    if worker is not None:
        host._workers = (WorkerStatus("w", f"tls://{_HOST}:{worker}", _HOST, 1, 0),)
    phases: list[str] = []
    asyncio.run(host._probe_policy(_HOST, phases.append))
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
