"""A controller has its threads from the beginning: later the host may refuse any."""

from __future__ import annotations

import asyncio
import threading

import pytest

from jupyter_ddl.controller.process import start_threads


def test_a_host_without_a_thread_to_spare_stops_no_work_beside_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def body() -> list[int]:
        start_threads(asyncio.get_running_loop())
        monkeypatch.setattr(threading.Thread, "start", refuse)
        together = threading.Barrier(4)
        done = await asyncio.gather(
            *(asyncio.to_thread(together.wait, 20) for _ in range(4)),
            *(asyncio.to_thread(int) for _ in range(20)),
        )
        monkeypatch.undo()
        return sorted(done)

    assert asyncio.run(body()) == sorted([0, 1, 2, 3, *[0] * 20])
