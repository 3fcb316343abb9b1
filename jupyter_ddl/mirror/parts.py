"""Files and blobs in parts over a link: a few parts on their way at a time, in order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from typing import TypeAlias, TypeVar

from jupyter_ddl.errors import ProtocolError
from jupyter_ddl.protocol.replies import Result
from jupyter_ddl.protocol.requests import Body

__all__ = ["Ask", "OnProgress", "expect", "in_flight"]

Ask: TypeAlias = Callable[[Body], Awaitable[Result]]
"""A request to the controller elsewhere; raises what it refuses with, or that the link is over.
Requests that begin one behind the other arrive so."""
OnProgress: TypeAlias = Callable[[int, int], object]
"""Given bytes that have come (or gone), and those of the whole."""

_N_IN_FLIGHT = 4
"""Parts of one file: enough for 80 MB/s where an answer takes 50 ms."""

T = TypeVar("T")


def expect(kind: type[T], result: Result) -> T:
    """The result, if it is of this kind.

    Raises
    ------
    ProtocolError
        The controller answered something else.
    """
    if not isinstance(result, kind):
        raise ProtocolError(f"a controller answered {type(result).__name__}, not {kind.__name__}")
    return result


async def in_flight(ask: Ask, bodies: Iterable[Body]) -> AsyncGenerator[Result, None]:
    """The answers to requests, in their order, while the next ones are under way.

    Close it (``contextlib.aclosing``): what is under way is given up then.
    """
    waiting: deque[asyncio.Future[Result]] = deque()
    try:
        for body in bodies:
            waiting.append(asyncio.ensure_future(ask(body)))
            if len(waiting) >= _N_IN_FLIGHT:
                yield await waiting.popleft()
        while waiting:
            yield await waiting.popleft()
    finally:
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
