"""How many parts of files are on their way over one connection at a time.

Whatever else is asked waits behind them, and so does the beat by which a lost network is noticed.
So on a slow road there are few, and on a fast one enough to fill it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator

from jupyter_ddl.errors import ControllerError

__all__ = ["Window"]

_MOST = 7
"""A controller cuts off who leaves more than 8 MiB of its answers unread."""
_QUICK_S, _SLOW_S = 0.5, 2.0


class Window:
    """Used on one loop only; who comes first goes first."""

    def __init__(self) -> None:
        self._most = 1
        self._n_inside = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def is_used(self) -> bool:
        """Whether a part is on its way."""
        return self._n_inside > 0

    @contextlib.asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Wait for a place, and keep it until the answer is here; how long that takes decides."""
        await self._enter()
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            yield
        except ControllerError:
            self._most = max(1, self._most // 2)
            raise
        else:
            self._took(loop.time() - began_s)
        finally:
            self._n_inside -= 1
            self._let_in()

    async def _enter(self) -> None:
        if not self._waiting and self._n_inside < self._most:
            self._n_inside += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it was let in at the same moment
                self._n_inside -= 1
                self._let_in()
            raise

    def _let_in(self) -> None:
        while self._waiting and self._n_inside < self._most:
            turn = self._waiting.popleft()
            if not turn.done():
                self._n_inside += 1
                turn.set_result(None)

    def _took(self, seconds: float) -> None:
        if seconds < _QUICK_S:
            self._most = min(_MOST, self._most + 1)
        elif seconds > _SLOW_S:
            self._most = max(1, self._most // 2)
