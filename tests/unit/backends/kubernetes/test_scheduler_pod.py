"""The lease of a cluster at a real Dask scheduler, and what the operator is told."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import dask
import pytest
from distributed import Scheduler, rpc
from tornado.httpclient import AsyncHTTPClient, HTTPClientError

from jupyter_ddl.backends.kubernetes import scheduler_pod
from jupyter_ddl.backends.kubernetes.scheduler_pod import RENEW, PodLease, dask_setup
from jupyter_ddl.store.awake import AwakeClock


class _Clock:
    """In place of the lease's clock: stands still until a test moves it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.passed_s = 0.0
        monkeypatch.setattr(scheduler_pod, "AwakeClock", lambda: self)

    def read(self) -> float:
        return 1000.0 + self.passed_s


_CONFIG = {"distributed.scheduler.http.routes": [scheduler_pod.__name__]}


@asynccontextmanager
async def scheduler(lease_s: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scheduler]:
    monkeypatch.setenv("JUPYTER_DDL_LEASE_S", lease_s)
    with dask.config.set(_CONFIG):
        made = Scheduler(host="127.0.0.1", port=0, dashboard_address="127.0.0.1:0", dashboard=False)
        dask_setup(made)
        async with made:
            yield made
            made.ddl_lease_watch.cancel()


async def ask(made: Scheduler, path: str, body: Any = None) -> Any:
    port = made.http_server.port
    answer = await AsyncHTTPClient().fetch(
        f"http://127.0.0.1:{port}/api/v1/{path}",
        method="GET" if body is None else "POST",
        body=None if body is None else json.dumps(body),
    )
    return json.loads(answer.body)


def test_a_lease_that_is_renewed_is_never_over(monkeypatch: pytest.MonkeyPatch) -> None:
    async def live() -> None:
        clock = _Clock(monkeypatch)
        async with scheduler("300", monkeypatch) as made, rpc(made.address) as calls:
            for _ in range(5):
                clock.passed_s += 299
                assert await ask(made, "check_idle") == {"idle_since": 0}
                assert await getattr(calls, RENEW)(retiring=[]) == made.id

    asyncio.run(live())


def test_when_it_is_over_the_operator_is_told_whatever_its_clock_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def live() -> None:
        clock = _Clock(monkeypatch)
        async with scheduler("300", monkeypatch) as made:
            clock.passed_s += 301
            idle_since = (await ask(made, "check_idle"))["idle_since"]
            an_hour_slow = time.time() - 3600
            assert an_hour_slow > idle_since + 300, "as the operator compares"

    asyncio.run(live())


def test_time_in_which_the_scheduler_stood_still_is_none_of_the_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scheduler_pod, "TICK_S", 0.01)

    async def live() -> None:
        passed_s = [0.0]
        clock = AwakeClock(lambda: passed_s[0], lambda: passed_s[0])
        monkeypatch.setattr(scheduler_pod, "AwakeClock", lambda: clock)
        async with scheduler("300", monkeypatch) as made:
            passed_s[0] += 1000
            assert await ask(made, "check_idle") == {"idle_since": 0}
            while clock.read() < 301:
                passed_s[0] += 2
            assert (await ask(made, "check_idle"))["idle_since"] > 0

    asyncio.run(live())


def test_without_an_operator_the_scheduler_ends_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler_pod, "TICK_S", 0.01)

    async def live() -> None:
        clock = _Clock(monkeypatch)
        async with scheduler("300", monkeypatch) as made:
            clock.passed_s += 301
            assert made.status.name == "running", "the operator has its time"
            clock.passed_s += scheduler_pod._OPERATOR_S
            async with asyncio.timeout(120):
                await made.finished()

    asyncio.run(live())


def test_what_was_given_up_is_renewed_by_nobody() -> None:
    """The container of a controller that has ended begins another one."""
    scheduler: Any = SimpleNamespace(id="one")
    lease = PodLease(scheduler, 300.0, lambda: 1000.0)
    lease.renew()
    assert not lease.is_over
    lease.end()
    assert lease.renew() == "one"
    assert lease.is_over


def test_only_workers_that_the_controller_named_are_retired(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def live() -> None:
        async with scheduler("300", monkeypatch) as made, rpc(made.address) as calls:
            with pytest.raises(HTTPClientError):
                await ask(made, "retire_workers", {"n": 3})
            await getattr(calls, RENEW)(retiring=["a", "b"])
            assert await ask(made, "retire_workers", {"n": 1}) == {"a": {"name": "a"}}
            both = await ask(made, "retire_workers", {"n": 9})
            assert sorted(both) == ["a", "b"], "asked again, it says the same"
            with pytest.raises(HTTPClientError):
                await ask(made, "retire_workers", {"n": "many"})

    asyncio.run(live())


@pytest.mark.parametrize("path", ["retire_workers", "check_idle", "no_such_thing"])
@pytest.mark.parametrize("told", ["Content-Length: 100000000", "Transfer-Encoding: chunked"])
def test_a_long_body_is_refused_before_it_is_read(
    monkeypatch: pytest.MonkeyPatch, path: str, told: str
) -> None:
    async def live() -> None:
        async with scheduler("300", monkeypatch) as made:
            port = made.http_server.port
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            head = f"POST /api/v1/{path} HTTP/1.1\r\nHost: h\r\n{told}\r\n\r\n"
            writer.write(head.encode())
            if "chunked" in told:
                writer.write(b"400\r\n" + b"7" * 0x400)
            async with asyncio.timeout(120):
                with contextlib.suppress(ConnectionError):
                    assert b" 200 " not in await reader.read()
            writer.close()
            assert await ask(made, "check_idle") == {"idle_since": 0}

    asyncio.run(live())


def test_who_never_finishes_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler_pod, "_HTTP_TIMEOUT_S", 0.05)

    async def live() -> None:
        async with scheduler("300", monkeypatch) as made:
            for begun in (
                b"",
                b"POST /api/v1/retire_workers HTTP/1.1\r\nHost",
                b"POST /api/v1/retire_workers HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n{",
            ):
                reader, writer = await asyncio.open_connection("127.0.0.1", made.http_server.port)
                writer.write(begun)
                async with asyncio.timeout(120):
                    assert await reader.read() == b"", "the connection is closed"
                writer.close()

    asyncio.run(live())


def test_nothing_else_answers_there(monkeypatch: pytest.MonkeyPatch) -> None:
    async def live() -> None:
        async with scheduler("300", monkeypatch) as made:
            for path in ("get_workers", "adaptive_target", "../../info/main/workers.html"):
                with pytest.raises(HTTPClientError):
                    await ask(made, path)

    asyncio.run(live())


def test_lease_is_kept_by_the_scheduler_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    async def live() -> None:
        async with scheduler("300", monkeypatch) as made:
            assert isinstance(made.extensions["jupyter_ddl_lease"], PodLease)

    asyncio.run(live())
