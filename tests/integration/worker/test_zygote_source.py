"""Zygotes that are forked by a source: what they are, when there is none, and when they end."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from jupyter_ddl.backends.zygote_source import SourceProcess
from jupyter_ddl.errors import LaunchError
from jupyter_ddl.store.processes import (
    OWNER_VARIABLE,
    ZYGOTE_VARIABLE,
    environment_value,
    kill_leftovers,
    pids_by,
)
from jupyter_ddl.worker import zygote_source
from jupyter_ddl.worker.rank_pool import RankPool
from jupyter_ddl.worker.zygote_process import NO_ZYGOTE, WorkerSettings, zygote_environment
from tests.integration.worker.worker_bench import is_alive
from tests.integration.worker.worker_bench import until as soon
from tests.until import PATIENCE_S, until

pytestmark = pytest.mark.integration

SETTINGS = WorkerSettings(owner_token=f"source-{os.getpid()}")

COUNTED = """
import os
with open({log!r}, "a") as log:
    log.write(f"{{os.getpid()}}\\n")
"""
SLOW = """
import ctypes, os
from pathlib import Path
Path({log!r}).write_text(str(os.getpid()))
if os.path.exists({log!r} + ".hang"):
    mutex, lock = ctypes.create_string_buffer(64), ctypes.PyDLL(None).pthread_mutex_lock
    lock(mutex), lock(mutex)  # forever, and no signal handler of Python runs meanwhile
"""


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of packages that the source and zygotes find."""
    path = tmp_path / "packages"
    path.mkdir()
    (path / "counted_package.py").write_text(COUNTED.format(log=str(tmp_path / "imported_by")))
    (path / "slow_package.py").write_text(SLOW.format(log=str(tmp_path / "slow")))
    # Or it were made by the first import, and the folder so changed.
    (path / "__pycache__").mkdir()
    monkeypatch.setenv("PYTHONPATH", str(path), prepend=os.pathsep)
    return path


@pytest.fixture
def source(packages: Path) -> Iterator[SourceProcess]:
    _forget_the_test()
    started = SourceProcess(zygote_environment(SETTINGS, NO_ZYGOTE))
    yield started
    started.close()
    left = functools.partial(_others, lambda pid: True)
    until(lambda: not left(), 5.0, "the end of all zygotes")


def _others(which: Callable[[int], bool]) -> list[int]:
    pids = pids_by(OWNER_VARIABLE).get(SETTINGS.owner_token, [])
    return [pid for pid in pids if is_alive(pid) and which(pid)]


def _in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(**fixtures: Any) -> None:
        asyncio.run(asyncio.wait_for(body(**fixtures), 4 * PATIENCE_S))

    async def body(**fixtures: Any) -> None:
        _forget_the_test()
        try:
            await test(**fixtures)
        finally:
            while _pools:
                await _pools.pop().close()

    return run


def _forget_the_test() -> None:
    """What pytest says in the environment is another word in each phase of a test."""
    os.environ.pop("PYTEST_CURRENT_TEST", None)


_pools: list[RankPool] = []


def a_pool(**settings: Any) -> RankPool:
    """What a worker has; the test's end closes it."""
    _pools.append(RankPool(msgspec.structs.replace(SETTINGS, **settings), lambda _: None))
    return _pools[-1]


def parent_of(pid: int | None) -> int:
    assert pid is not None
    return int(psutil.Process(pid).ppid())


def imported_by(packages: Path) -> list[int]:
    log = packages.parent / "imported_by"
    return [int(pid) for pid in log.read_text().split()] if log.exists() else []


@_in_loop
async def test_what_several_workers_need_is_imported_once(
    packages: Path, source: SourceProcess
) -> None:
    pools = [a_pool(), a_pool(prewarm=("counted_package",)), a_pool()]
    zygotes = [await pool.import_packages(("counted_package",)) for pool in pools]
    for zygote in zygotes:
        await zygote.through()
    assert {parent_of(zygote.pid) for zygote in zygotes} == {source.pid}
    assert imported_by(packages) == [source.pid]


@_in_loop
async def test_a_forked_zygote_is_found_by_its_own_variables(source: SourceProcess) -> None:
    pools = [a_pool(), a_pool()]
    zygotes = [await pool.start() for pool in pools]
    ids = [environment_value(zygote.pid or 0, ZYGOTE_VARIABLE) for zygote in zygotes]
    assert ids == [zygote.id for zygote in zygotes]
    assert environment_value(source.pid, ZYGOTE_VARIABLE) == NO_ZYGOTE
    assert {os.getsid(zygote.pid or 0) for zygote in zygotes} == {z.pid for z in zygotes}
    assert kill_leftovers(ZYGOTE_VARIABLE, zygotes[0].id) == [zygotes[0].pid]


@_in_loop
async def test_another_environment_is_not_the_sources(
    packages: Path, source: SourceProcess
) -> None:
    for settings in ({"cpus_per_slot": 7}, {"overlay": str(packages)}):
        pool = a_pool(**settings)
        zygote = await pool.import_packages(("counted_package",))
        await zygote.through()
        assert parent_of(zygote.pid) == os.getpid()
        assert imported_by(packages)[-1] == zygote.pid
    assert source.pid not in imported_by(packages)


@_in_loop
async def test_after_a_change_of_packages_nobody_gets_the_old_ones(
    packages: Path, source: SourceProcess
) -> None:
    pool = a_pool(prewarm=("counted_package",))
    first = await pool.start()
    (packages / "another_package.py").write_text("")
    await pool.renew("")
    second = await pool.start()
    await second.through()
    assert parent_of(second.pid) == os.getpid()
    assert imported_by(packages) == [source.pid, second.pid]
    former = source.pid
    until(lambda: source.keep() or source.pid != former, 5.0, "the next source")  # type: ignore[func-returns-value]
    await pool.renew("")
    third = await pool.start()
    assert parent_of(third.pid) == source.pid
    assert imported_by(packages)[2:] == [source.pid]
    assert first.pid not in imported_by(packages)


@_in_loop
async def test_a_source_that_hangs_is_done_without(
    packages: Path, source: SourceProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zygote_source, "IMPORT_TIMEOUT_S", 0.2)
    os.kill(source.pid, signal.SIGSTOP)
    pool = a_pool(prewarm=("counted_package",))
    zygote = await pool.start()
    await zygote.through()
    assert imported_by(packages) == [zygote.pid]
    assert not zygote_source.has_source(), "it is asked no more"
    os.kill(source.pid, signal.SIGCONT)


@_in_loop
async def test_a_worker_that_closes_waits_for_no_import_of_the_source(
    packages: Path, source: SourceProcess
) -> None:
    (packages.parent / "slow.hang").touch()
    pool = a_pool(prewarm=("slow_package",))
    starting = asyncio.create_task(pool.start())
    await soon((packages.parent / "slow").exists)
    await pool.close()
    with pytest.raises(LaunchError, match="closing"):
        await starting
    assert _others(lambda pid: pid != source.pid) == []


@_in_loop
async def test_zygotes_outlive_the_source(source: SourceProcess) -> None:
    pool = a_pool()
    zygote = await pool.start()
    former = source.pid
    os.kill(former, signal.SIGKILL)
    until(lambda: source.keep() or source.pid != former, 5.0, "the next source")  # type: ignore[func-returns-value]
    assert await pool.start() is zygote
    os.kill(zygote.pid or 0, signal.SIGKILL)
    await soon(lambda: zygote.is_lost)
    other = await pool.start()
    assert parent_of(other.pid) == source.pid


WORKER = """
import asyncio, multiprocessing, socket, sys, time
from jupyter_ddl.worker.rank_pool import RankPool
from jupyter_ddl.worker.zygote_process import WorkerSettings
from jupyter_ddl.worker.zygote_source import offer_source
offer_source(socket.socket(fileno=int(sys.argv[1])))
async def main():
    pool = RankPool(WorkerSettings(owner_token=sys.argv[2]), print)
    zygote = await pool.start()
    for name in sys.argv[4:]:
        zygote.import_packages((name,))
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
    if sys.argv[3] == "forked":
        child.start()
    print(zygote.pid, child.pid or 0, flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


@pytest.mark.parametrize("state", ["idle", "stopped", "importing", "forked"])
def test_a_killed_worker_leaves_no_zygote(
    packages: Path, source: SourceProcess, state: str
) -> None:
    """Nor does one that has forked: code that people hand to Dask may do that in any worker."""
    _forget_the_test()
    hangs = packages.parent / "slow"
    if state == "importing":
        Path(f"{hangs}.hang").touch()
    names = ["slow_package"] if state == "importing" else []
    requests = zygote_source.requests_fd()
    command = [sys.executable, "-c", WORKER, str(*requests), SETTINGS.owner_token, state, *names]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, pass_fds=requests, env=dict(os.environ)
    ) as worker:
        try:
            assert worker.stdout is not None
            zygote, child = map(int, worker.stdout.readline().split())
            assert parent_of(zygote) == source.pid
            if state == "stopped":
                os.kill(zygote, signal.SIGSTOP)
            elif state == "importing":
                until(lambda: hangs.exists() and hangs.read_text() == str(zygote), 5.0, "import")
        finally:
            worker.kill()
    try:
        until(lambda: not is_alive(zygote), 5.0, "the end of the zygote")
        until(lambda: not psutil.pid_exists(zygote), 5.0, "and of its zombie")
    finally:
        if child:
            os.kill(child, signal.SIGKILL)
