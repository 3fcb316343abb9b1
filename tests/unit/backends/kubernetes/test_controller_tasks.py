"""What a controller in a pod does beside its runs: again and again, and never for good."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from jupyter_ddl.backends.kubernetes import backend as module
from jupyter_ddl.backends.kubernetes.backend import KubeBackend
from jupyter_ddl.backends.kubernetes.scheduler_pod import RENEW
from jupyter_ddl.backends.kubernetes.settings import KubeSettings
from jupyter_ddl.backends.kubernetes.spot import SpotPool
from jupyter_ddl.errors import BackendError
from jupyter_ddl.protocol.cluster import ClusterSpec

POOL = SpotPool({"spot": "yes"})
AWAY = BackendError("the API server can't be reached", status=0)


def backend(api: Any = None, **kube: Any) -> KubeBackend:
    settings = msgspec.to_builtins(KubeSettings("team/image:1", **kube))
    found: Any = KubeBackend(ClusterSpec("kube", "kube", settings=settings))
    found._api, found._cluster = api, {"metadata": {"name": "kube-1"}}
    found._security = None
    made: KubeBackend = found
    return made


def pauses_of(
    task: Coroutine[Any, Any, None], n: int, monkeypatch: pytest.MonkeyPatch
) -> list[float]:
    """How long it sleeps, ``n`` times; nobody waits for it."""
    found: list[float] = []

    async def sleep(seconds: float) -> None:
        if len(found) == n:
            raise asyncio.CancelledError
        found.append(seconds)

    monkeypatch.setattr(module, "asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": sleep}))
    try:
        asyncio.run(task)
    except asyncio.CancelledError:
        assert len(found) == n
    return found


class _Nodes:
    """An API server that answers each question after ``n_away`` that it does not."""

    def __init__(self, n_away: int, *, may: bool = True) -> None:
        self.n_away, self.is_allowed = n_away, may

    def _look(self) -> None:
        if self.n_away:
            self.n_away -= 1
            raise AWAY

    async def may(self, verb: str, *_: Any, **__: Any) -> bool:
        if verb == "get":
            self._look()
        return self.is_allowed

    async def list(self, *_: Any, **__: Any) -> list[Any]:
        self._look()
        return []


def test_an_api_server_that_is_away_at_first_turns_notices_off_for_a_moment_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = pauses_of(backend(_Nodes(1), spot=POOL)._watch_nodes(), 4, monkeypatch)
    assert found == [3.0, 6.0, 3.0, 3.0]


def test_who_may_not_look_at_nodes_asks_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found = pauses_of(backend(_Nodes(0, may=False), spot=POOL)._watch_nodes(), 9, monkeypatch)
    assert found == [3.0]


def test_nodes_that_are_not_taken_away_are_looked_at_seldom(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert pauses_of(backend(_Nodes(0))._watch_nodes(), 2, monkeypatch) == [15.0, 15.0]


def test_one_refusal_is_told_once_however_long_it_lasts(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        found = pauses_of(backend(_Nodes(99), spot=POOL)._watch_nodes(), 6, monkeypatch)
    assert found == [3.0, 6.0, 12.0, 24.0, 30.0, 30.0]
    assert [each.message for each in caplog.records].count(f"nodes: {AWAY.message}") == 1


def test_an_image_that_no_worker_tells_of_is_looked_for_ever_more_seldom(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = pauses_of(backend(_Nodes(0))._look_for_image(), 9, monkeypatch)
    assert found == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


class _Client:
    """Connected to a scheduler that says ``answers``, an error or its id."""

    status = "running"

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.n_renewed = 0
        self.scheduler = SimpleNamespace(**{RENEW: self._renew, "identity": self._identity})

    def __await__(self) -> Any:
        return self._connected().__await__()

    async def _connected(self) -> _Client:
        return self

    async def _identity(self, **_: Any) -> dict[str, Any]:
        return {"id": "one", "workers": {}}

    async def _renew(self, **_: Any) -> str:
        self.n_renewed += 1
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return str(answer)

    async def close(self) -> None: ...


def test_a_controller_that_does_not_serve_yet_renews_no_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = _Client(), _Client("two")
    clients = [first, second]
    monkeypatch.setattr(module, "Client", lambda *_, **__: clients.pop(0))
    found = backend()

    async def live() -> None:
        assert await found._try_connect()
        assert (first.n_renewed, found._scheduler_id) == (0, "one")
        first.status = "closed"
        assert await found._try_connect()

    asyncio.run(live())
    assert (second.n_renewed, found._scheduler_id) == (1, "two")


def test_no_answer_of_a_scheduler_ends_the_renewals(monkeypatch: pytest.MonkeyPatch) -> None:
    found = backend()
    client: Any = _Client(RuntimeError("what is this"), ValueError("unknown operation"), "one")
    found.client, found._scheduler_id = client, "one"
    assert pauses_of(found._renew_on(), 3, monkeypatch) == [30.0, 30.0, 30.0]
    assert client.n_renewed == 3
