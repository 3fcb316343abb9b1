"""A zygote imports one thing after another; who wants a fork waits for that, with patience."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Sequence
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from jupyter_ddl.errors import LaunchError
from jupyter_ddl.protocol.rank_messages import (
    ForkRank,
    FromZygote,
    ImportPackages,
    PackagesImported,
    RankForked,
)
from jupyter_ddl.worker import zygote_process
from jupyter_ddl.worker.zygote_process import WorkerSettings, Zygote


class _Silent(Zygote):
    """Has no process: keeps what it would be sent."""

    def __init__(self) -> None:
        nothing: Any = lambda *_: None  # noqa: E731
        super().__init__(
            WorkerSettings("token"), on_rank_exited=nothing, on_imported=nothing, on_lost=nothing
        )
        self.sent: list[Any] = []
        self._closing = True  # nobody reaps it

    def _send(self, message: Any, fds: Sequence[int]) -> None:
        if self.is_lost:
            raise LaunchError("it has ended")
        self.sent.append(message)

    def answer(self, message: FromZygote) -> None:
        self._on_frame(msgspec.msgpack.encode(message))

    def asks(self) -> asyncio.Task[int]:
        """Ask for a fork, as far as that gets by itself."""
        rank_end: Any = SimpleNamespace(fileno=lambda: -1)
        return asyncio.create_task(self.fork("rank", rank_end))


def _in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: Any, **options: Any) -> None:
        asyncio.run(test(*args, **options))

    return run


async def _turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@_in_loop
async def test_a_fork_is_asked_for_when_all_imports_are_through() -> None:
    zygote = _Silent()
    zygote.import_packages(("torch",))
    zygote.import_packages(("scipy", "torch"))
    pid = zygote.asks()
    await _turn()
    assert zygote.sent == [ImportPackages(("torch",)), ImportPackages(("scipy",))]
    zygote.answer(PackagesImported(("torch",), {}))
    await _turn()
    assert len(zygote.sent) == 2
    zygote.answer(PackagesImported((), {"scipy": "ImportError: no"}))
    await _turn()
    assert zygote.sent[2:] == [ForkRank("rank")]
    zygote.answer(RankForked("rank", 7))
    assert await pid == 7
    zygote.import_packages(("scipy", "torch"))
    assert len(zygote.sent) == 3


@_in_loop
async def test_a_zygote_that_dies_of_an_import_keeps_nobody_waiting() -> None:
    zygote = _Silent()
    zygote._ready.set_result(None)
    zygote.import_packages(("torch",))
    pid = zygote.asks()
    await _turn()
    zygote._on_closed()
    with pytest.raises(LaunchError, match="it has ended"):
        await pid


@_in_loop
async def test_an_import_without_end_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zygote_process, "_IMPORT_TIMEOUT_S", 0)
    zygote = _Silent()
    zygote.import_packages(("torch",))
    with pytest.raises(LaunchError, match=r"longer than 0 s; an import in the zygote"):
        await zygote.asks()
    assert len(zygote.sent) == 1
