"""What a watch holds against whom, and from when on; its minutes take none of ours."""

from __future__ import annotations

import asyncio
import copy
import itertools
import selectors
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from jupyter_ddl.backends.kubernetes.diagnosis import diagnose
from jupyter_ddl.backends.kubernetes.pod_watch import PodWatch
from jupyter_ddl.errors import BackendError

Json = dict[str, Any]
_CLUSTER: Json = {"metadata": {"name": "kube-1"}}
_POD: Json = {
    "metadata": {
        "name": "kube-1-default-worker-x",
        "labels": {"dask.org/component": "worker", "dask.org/cluster-name": "kube-1"},
    },
    "spec": {"containers": [{}]},
    "status": {
        "conditions": [
            {"type": "PodScheduled", "status": "False", "message": "0/1 nodes: Insufficient cpu"}
        ]
    },
}


class _Selector(selectors.DefaultSelector):
    """Waits for nothing: whoever sleeps is woken at once, and told that it is later."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> Any:
        self.now_s += timeout or 0.0
        return super().select(0)


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._own = _Selector()
        super().__init__(self._own)

    def time(self) -> float:
        return self._own.now_s


def _live(scene: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=_Loop) as runner:
        runner.run(scene)


class _Api:
    """An API server, as a watch sees it: it tells of ``pods``, and may be away for a while."""

    def __init__(self, *pods: Json) -> None:
        self.pods = list(pods)
        self.away_at_s = (float("inf"), float("inf"))
        self.error: BackendError | None = None
        self.log = ""

    async def list(self, resource: str, **_: str) -> list[Json]:
        loop = asyncio.get_running_loop()
        first_s, last_s = self.away_at_s
        if first_s <= loop.time() < last_s:
            await asyncio.sleep(last_s - loop.time())
        if self.error is not None:
            raise self.error
        return self.pods if resource == "pods" else []

    async def get(self, _: str, __: str) -> Json:
        return _CLUSTER

    async def log_tail(self, *_: Any, **__: Any) -> str:
        return self.log


async def _never(_: bool) -> bool:
    return False


async def _refused_at_s(api: _Api) -> float:
    loop = asyncio.get_running_loop()
    with pytest.raises(BackendError, match="nobody acts on DaskCluster kube-1"):
        await PodWatch(api, _CLUSTER, 2, lambda _: None).until_scheduler_serves(_never)  # type: ignore[arg-type]
    return loop.time()


def test_an_operator_that_does_not_act_is_told_before_half_a_minute() -> None:
    async def scene() -> None:
        assert 22 <= await _refused_at_s(_Api()) < 24

    _live(scene())


@pytest.mark.parametrize("away_s", [3.0, 60.0])
def test_after_an_api_server_was_away_the_operator_has_time_to_find_it_again(away_s: float) -> None:
    async def scene() -> None:
        api = _Api()
        api.away_at_s = (15.0, 15.0 + away_s)
        since_s = await _refused_at_s(api) - (15.0 + away_s)
        assert 20 + 22 <= since_s < 20 + 22 + 2

    _live(scene())


def test_an_api_server_that_is_slow_was_not_away() -> None:
    async def scene() -> None:
        api = _Api()
        api.away_at_s = (15.0, 16.5)
        assert 22 <= await _refused_at_s(api) < 25

    _live(scene())


# -- why workers are missing -----------------------------------------------------------------------


async def _shortage_after(
    api: _Api, count: Callable[[], Awaitable[int]], seconds: float, scene: Callable[[PodWatch], Any]
) -> None:
    watch = PodWatch(api, _CLUSTER, 2, lambda _: None)  # type: ignore[arg-type]
    explaining = asyncio.create_task(watch.explain_shortages(lambda: 2, count))
    await asyncio.sleep(seconds)
    scene(watch)
    explaining.cancel()
    with pytest.raises(asyncio.CancelledError):
        await explaining


def test_what_a_pod_has_said_is_forgotten_with_the_pod() -> None:
    async def scene() -> None:
        pod = copy.deepcopy(_POD)
        pod["status"] = {"containerStatuses": [{"name": "worker", "state": {"running": {}}}]}
        api = _Api(pod)
        api.log = "socket.gaierror: Name or service not known"
        watch = PodWatch(api, _CLUSTER, 1, lambda _: None)  # type: ignore[arg-type]
        for _ in range(20):
            await watch._observe(0)
            await asyncio.sleep(1)
        assert "can't resolve the name" in str(diagnose(watch._view))
        api.pods = []
        await watch._observe(0)
        assert "can't resolve the name" not in str(diagnose(watch._view))
        assert not watch._running_since_s

    _live(scene())


def test_a_scheduler_that_never_answers_once_does_not_end_the_explanations() -> None:
    n_asked = 0

    async def count() -> int:
        nonlocal n_asked
        n_asked += 1
        if n_asked == 1:
            await asyncio.Event().wait()
        return 1

    def seen(watch: PodWatch) -> None:
        assert n_asked > 5
        assert "no node fits pod kube-1-default-worker-x" in watch.shortage

    _live(_shortage_after(_Api(_POD), count, 60.0, seen))


def test_a_scheduler_that_never_answers_is_asked_again_and_again() -> None:
    asked_at_s: list[float] = []

    async def count() -> int:
        asked_at_s.append(asyncio.get_running_loop().time())
        await asyncio.Event().wait()
        return 0

    def seen(watch: PodWatch) -> None:
        steps_s = {later - former for former, later in itertools.pairwise(asked_at_s)}
        assert len(asked_at_s) == 7
        assert steps_s == {8.0}
        assert watch.shortage == "", "nothing is known"

    _live(_shortage_after(_Api(_POD), count, 55.0, seen))


def test_what_the_api_server_refuses_is_the_reason_until_it_answers() -> None:
    api = _Api(_POD)
    said: list[str] = []

    async def count() -> int:
        loop = asyncio.get_running_loop()
        api.error = BackendError("it is forbidden", status=403) if loop.time() < 30 else None
        return 1 if loop.time() < 80 else 2

    async def scene() -> None:
        watch = PodWatch(api, _CLUSTER, 2, lambda _: None)  # type: ignore[arg-type]
        explaining = asyncio.create_task(watch.explain_shortages(lambda: 2, count))
        for _ in range(3):
            await asyncio.sleep(29)
            said.append(watch.shortage)
        explaining.cancel()

    _live(scene())
    assert said[0] == "it is forbidden"
    assert said[1].startswith("no node fits pod")
    assert said[2] == "", "all are there"
