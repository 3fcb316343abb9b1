"""Samples go with chunks of events where there are any, and at whole seconds where not."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

import pytest

from jupyter_ddl.worker.telemetry.worker_meter import SamplePost

_INTERVAL_S = 0.1


def _posted(body: Callable[[SamplePost, asyncio.AbstractEventLoop], None]) -> list[list[float]]:
    """Number of each sample and the loop's time when it was sent."""

    async def run() -> list[list[float]]:
        loop = asyncio.get_running_loop()
        sent: list[list[float]] = []
        is_over = asyncio.Event()

        def send(sample: bytes) -> None:
            sent.append([int(sample), loop.time()])
            is_over.set()

        post = SamplePost(_INTERVAL_S, send)
        await asyncio.sleep(0)  # let it find its first moment
        body(post, loop)
        await asyncio.wait_for(is_over.wait(), 5.0)
        post.close()
        return sent

    return asyncio.run(run())


def test_the_newest_sample_is_sent_at_a_whole_multiple_of_the_interval() -> None:
    def body(post: SamplePost, _: asyncio.AbstractEventLoop) -> None:
        post.put(b"1")
        post.put(b"2")

    ((number, at_s),) = _posted(body)
    assert number == 2
    assert at_s > math.floor(at_s / _INTERVAL_S) * _INTERVAL_S


def test_a_sample_that_is_due_goes_with_what_is_sent_anyway() -> None:
    went_at_s = []

    def body(post: SamplePost, loop: asyncio.AbstractEventLoop) -> None:
        post.put(b"1")
        due_s = (math.floor(loop.time() / _INTERVAL_S) + 1) * _INTERVAL_S

        def go() -> None:
            went_at_s.append(loop.time())
            post.go_along()

        loop.call_at(due_s, go)

    ((_, at_s),) = _posted(body)
    assert at_s == pytest.approx(went_at_s[0], abs=0.005)


def test_a_sample_that_is_not_due_yet_goes_with_nothing() -> None:
    async def run() -> list[bytes]:
        sent: list[bytes] = []
        post = SamplePost(1e9, sent.append)
        await asyncio.sleep(0)
        post.put(b"1")
        post.go_along()
        post.close()
        return sent

    assert asyncio.run(run()) == []
