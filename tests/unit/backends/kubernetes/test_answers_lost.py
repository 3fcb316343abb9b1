"""Calls to an API server whose answers are lost on their way."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_ddl.backends.kubernetes import api as module
from jupyter_ddl.backends.kubernetes.api import KubeApi
from jupyter_ddl.errors import BackendError

BODY = {"metadata": {"name": "kube-1"}}


class _Refused(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(str(status))
        self.response = SimpleNamespace(status_code=status)


class _Server:
    """Keeps what is created; of the first ``n_lost`` calls nobody hears an answer."""

    def __init__(self, n_lost: int) -> None:
        self.n_lost = n_lost
        self.kept: dict[str, Any] = {}

    @asynccontextmanager
    async def call_api(self, method: str, url: str, **request: Any) -> AsyncIterator[Any]:
        name = url.partition("/")[2]
        if method == "POST":
            name = request["json"]["metadata"]["name"]
            if name in self.kept:
                raise _Refused(409)
            made = json.loads(json.dumps(request["json"]))
            made["metadata"]["uid"] = "u-1"
            self.kept[name] = made
        if self.n_lost:
            self.n_lost -= 1
            raise OSError("connection reset")
        yield SimpleNamespace(json=lambda: self.kept[name])


def created(server: _Server) -> Any:
    api = KubeApi(server, "space", 20.0)
    return asyncio.run(api.create("daskclusters", BODY))


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PAUSE_S", 0.0)


def test_what_was_made_while_nobody_heard_of_it_is_made() -> None:
    assert created(_Server(1))["metadata"]["uid"] == "u-1"


def test_what_is_there_already_is_not_ours() -> None:
    server = _Server(0)
    server.kept["kube-1"] = BODY
    with pytest.raises(BackendError) as caught:
        created(server)
    assert caught.value.status == 409


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("Traceback\nImportError: torch\n", "Traceback\nImportError: torch"),
        ("unable to retrieve container logs for containerd://4f2a", ""),
        (
            'failed to try resolving symlinks in path "/var/log/pods/a_b_c/worker/0.log": lstat '
            "/var/log/pods/a_b_c/worker/0.log: no such file or directory",
            "",
        ),
    ],
)
def test_a_kubelet_that_has_no_log_is_not_taken_for_one(answer: str, told: str) -> None:
    """Its sentence comes with status 200, where the log would."""

    class Server:
        @asynccontextmanager
        async def call_api(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
            yield SimpleNamespace(text=answer)

    api = KubeApi(Server(), "space", 20.0)
    tail = api.log_tail("kube-1-worker", "worker", previous=False, n_lines=5)
    assert asyncio.run(tail) == told
