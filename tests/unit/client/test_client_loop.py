"""The way from synchronous code into the client's own loop."""

from __future__ import annotations

import asyncio
import threading

import pytest

from jupyter_ddl.client.link import ClientLoop
from jupyter_ddl.errors import ControllerError


@pytest.fixture
def loop() -> object:
    made = ClientLoop()
    yield made
    made.close()


async def forever() -> None:
    await asyncio.Event().wait()


async def double(number: int) -> int:
    return 2 * number


def test_results_and_errors_come_back(loop: ClientLoop) -> None:
    async def failing() -> None:
        raise ValueError("no")

    assert loop.call(double(4), 5.0) == 8
    with pytest.raises(ValueError, match="no"):
        loop.call(failing(), 5.0)


def test_it_works_inside_a_running_loop(loop: ClientLoop) -> None:
    async def cell() -> int:
        return loop.call(double(3), 5.0)

    assert asyncio.run(cell()) == 6


def test_a_missing_answer_is_an_error_and_its_wait_is_cancelled(loop: ClientLoop) -> None:
    ended = threading.Event()

    async def waiting() -> None:
        try:
            await forever()
        finally:
            ended.set()

    with pytest.raises(ControllerError, match="did not answer within 0 s"):
        loop.call(waiting(), 0.3)
    assert ended.wait(5)


def test_a_timeout_of_the_work_itself_is_passed_on(loop: ClientLoop) -> None:
    async def timed_out() -> None:
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        loop.call(timed_out(), 5.0)


def test_a_call_from_the_loop_itself_is_refused(loop: ClientLoop) -> None:
    async def inner() -> None:
        loop.call(double(1), 5.0)

    with pytest.raises(ControllerError, match="own event loop"):
        loop.call(inner(), 5.0)
