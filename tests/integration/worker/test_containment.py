"""Nothing outlives its worker, whatever state it is in; and a full disk is told as such."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_ddl.protocol.assignment import Prewarm
from jupyter_ddl.protocol.events import AttemptStarted
from jupyter_ddl.store.processes import OWNER_VARIABLE, pids_by
from tests.integration.worker.worker_bench import (
    Bench,
    finishes,
    in_bench,
    is_alive,
    open_bench,
    until,
)

pytestmark = pytest.mark.integration

GIL_BOUND = "import ctypes; ctypes.PyDLL(None).sleep(600)"
WITH_CHILDREN = """
import multiprocessing as mp, os, subprocess, time
subprocess.Popen(["sleep", "600"], start_new_session=True)
subprocess.Popen(["sh", "-c", "setsid sleep 600 & sleep 600"])
mp.get_context("fork").Process(target=time.sleep, args=(600,), daemon=True).start()
print("ready", flush=True)
time.sleep(600)
"""
ASLEEP = "import time; time.sleep(600)"


def alive_below(bench: Bench) -> list[int]:
    return [pid for pid in pids_by(OWNER_VARIABLE).get(bench.owner, []) if is_alive(pid)]


async def begin(bench: Bench, source: str) -> AttemptStarted:
    assignment = bench.assignment(source)
    future = bench.submit(assignment)
    started = await bench.started(assignment)
    future.add_done_callback(lambda _: None)
    return started


async def kill_worker(bench: Bench) -> float:
    """SIGKILL the worker; return how long its processes outlived it."""
    pid = next(iter((await bench.client.run(os.getpid)).values()))
    before = alive_below(bench)
    assert before, "the zygote and its ranks are found by their owner"
    os.kill(pid, signal.SIGKILL)
    begun_s = time.monotonic()
    # The nanny may have started another worker by then: only the old ones count.
    await until(lambda: not any(map(is_alive, before)), timeout_s=2.0)
    return time.monotonic() - begun_s


@pytest.mark.parametrize(
    ("source", "signals"),
    [
        (ASLEEP, ()),
        (GIL_BOUND, ()),
        (ASLEEP, ("rank",)),
        (WITH_CHILDREN, ()),
        (WITH_CHILDREN, ("rank", "zygote")),
        (WITH_CHILDREN, ("import",)),
    ],
    ids=["asleep", "gil-bound", "stopped", "with-children", "everything-stopped", "importing"],
)
def test_killing_the_worker_leaves_nothing(
    tmp_path: Path, source: str, signals: tuple[str, ...]
) -> None:
    async def body() -> None:
        async with open_bench(tmp_path) as bench:
            started = await begin(bench, source)
            if "ready" in source:
                await until(lambda: "ready" in bench.log_text(started))
                await until(lambda: len(alive_below(bench)) >= 7)
            if "rank" in signals:
                os.kill(started.pid, signal.SIGSTOP)
            if "import" in signals:
                await bench.control(Prewarm(("torch",)))  # takes a second or more
            if "zygote" in signals:
                os.kill((await bench.describe())[0]["zygote_pid"], signal.SIGSTOP)
            print(f"gone after {await kill_worker(bench):.3f} s")

    asyncio.run(asyncio.wait_for(body(), 60))


@in_bench()
async def test_closing_the_cluster_leaves_nothing_of_a_busy_rank(bench: Bench) -> None:
    started = await begin(bench, WITH_CHILDREN)
    await until(lambda: "ready" in bench.log_text(started))
    await until(lambda: len(alive_below(bench)) >= 7)
    # The bench itself checks that nothing is left once it has closed.


@in_bench()
async def test_a_killed_zygote_leaves_nothing_in_other_sessions(bench: Bench) -> None:
    started = await begin(bench, WITH_CHILDREN)
    await until(lambda: "ready" in bench.log_text(started))
    await until(lambda: len(alive_below(bench)) >= 7)
    before = alive_below(bench)
    os.kill((await bench.describe())[0]["zygote_pid"], signal.SIGKILL)
    await until(lambda: not any(map(is_alive, before)), timeout_s=5.0)


@contextlib.contextmanager
def small_disk(path: Path) -> Iterator[None]:
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(path)]
    if os.getuid() != 0 or subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("mounting a small file system needs root")
    try:
        yield
    finally:
        subprocess.run(["umount", str(path)], check=True)


def test_a_full_disk_under_the_log_is_a_failure_of_kind_disk(tmp_path: Path) -> None:
    async def body() -> None:
        async with open_bench(tmp_path) as bench:
            source = "import sys\ntry:\n    print('x' * 200_000)\nexcept OSError:\n    pass"
            ends = finishes(await bench.execute(bench.assignment(source, n_trials=2)))
            assert [end.outcome for end in ends] == ["failed", "failed"]
            assert {end.failure.kind for end in ends if end.failure} == {"disk"}

    with small_disk(tmp_path / "r1"):
        asyncio.run(asyncio.wait_for(body(), 60))


@in_bench()
async def test_a_log_that_can_not_be_made_is_a_failure_of_kind_disk(bench: Bench) -> None:
    (bench.path / "r1").mkdir()
    (bench.path / "r1" / "logs").write_text("in the way")
    ends = finishes(await bench.execute(bench.assignment("x = 1", n_trials=2)))
    assert [(end.outcome, end.failure and end.failure.kind) for end in ends] == [
        ("failed", "disk"),
        ("failed", "disk"),
    ]
