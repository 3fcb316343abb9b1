"""Time that counts: not that in which nobody looked at the clock."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time

import psutil
import pytest

from jupyter_ddl.store.awake import TICK_S, AwakeClock, AwakeLoop, awake_s
from tests.until import until


class Host:
    """The clocks of a host that can sleep."""

    def __init__(self) -> None:
        self.monotonic_s = 1000.0
        self.slept_s = 50.0
        self.clock = AwakeClock(lambda: self.monotonic_s, lambda: self.monotonic_s + self.slept_s)

    def live(self, for_s: float) -> None:
        """Time passes, and the clock is looked at."""
        for _ in range(int(for_s)):
            self.monotonic_s += 1.0
            self.clock.read()


def test_it_is_the_monotonic_clock_while_somebody_looks() -> None:
    host = Host()
    began_s = host.clock.read()
    host.live(3600)
    host.monotonic_s += 0.25
    assert host.clock.read() - began_s == pytest.approx(3600.25)
    assert host.clock.take_still_s() == 0.0


def test_a_stopped_process_has_lost_the_time_and_tells_it_once() -> None:
    host = Host()
    host.live(10)
    before_s = host.clock.read()
    host.monotonic_s += 95.0
    assert host.clock.read() - before_s == TICK_S
    host.live(10)
    assert host.clock.read() - before_s == 10 + TICK_S
    assert host.clock.take_still_s() == 94.0
    assert host.clock.take_still_s() == 0.0


def test_a_host_that_slept_tells_so_though_its_monotonic_clock_did_too() -> None:
    host = Host()
    host.live(10)
    before_s = host.clock.read()
    host.slept_s += 8 * 3600.0
    host.live(1)
    assert host.clock.read() - before_s == 1.0
    assert host.clock.take_still_s() == 8 * 3600.0


def test_a_busy_moment_counts_for_nobody_and_is_told_to_nobody() -> None:
    host = Host()
    before_s = host.clock.read()
    host.monotonic_s += 5.0
    assert host.clock.read() - before_s == TICK_S
    assert host.clock.take_still_s() == 0.0


STOPPED = """
import asyncio, os, signal, time
from jupyter_ddl.store.awake import AwakeLoop

async def live():
    seen = []
    loop, began_s = asyncio.get_running_loop(), time.monotonic()
    loop.call_later(5.0, seen.append, "deadline")
    os.kill(os.getpid(), signal.SIGSTOP)
    for _ in range(10):
        await asyncio.sleep(0)
    print(seen, time.monotonic() - began_s > 5.0, loop.clock.take_still_s() > 0.0)

with asyncio.Runner(loop_factory=AwakeLoop) as runner:
    runner.run(live())
"""


def test_a_loop_that_stood_still_does_not_find_its_deadlines_passed() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STOPPED], stdout=subprocess.PIPE, text=True
    ) as process:
        stopped = psutil.Process(process.pid)
        until(lambda: stopped.status() == psutil.STATUS_STOPPED, 5.0, "the stop")
        ends_s = time.monotonic() + 12.0
        until(lambda: time.monotonic() > ends_s, 12.0)
        stopped.resume()
        assert process.communicate()[0] == "[] True True\n"


def test_timeouts_and_sleeps_count_by_it() -> None:
    async def live() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
        began_s = awake_s()
        await asyncio.sleep(0.05)
        assert awake_s() - began_s >= 0.04

    with asyncio.Runner(loop_factory=AwakeLoop) as runner:
        runner.run(live())
        runner.run(live())  # a loop that goes on again
