"""No process, descriptor or inode is left: it is told with the limit, and all goes on behind it."""

from __future__ import annotations

import contextlib
import itertools
import os
import resource
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from jupyter_ddl.client.clusters import Cluster, start_cluster
from jupyter_ddl.client.run import Run
from jupyter_ddl.errors import JupyterDDLError
from jupyter_ddl.protocol.events import Notice
from jupyter_ddl.protocol.snapshot import RunSnapshot
from tests.leaks import Home, processes_of
from tests.run_tools import (
    SLEEPING,
    STEPS,
    assert_clean,
    controller_pid,
    start_search,
    wait_for,
    workers,
)
from tests.until import until

pytestmark = pytest.mark.integration


@contextlib.contextmanager
def no_process_to_spare(home: Home) -> Iterator[None]:
    """All processes of a home are in a control group that is full."""
    root = Path("/sys/fs/cgroup")
    root = root / "pids" if (root / "pids").is_dir() else root
    group = root / f"jupyter-ddl-test-{uuid.uuid4().hex[:8]}"
    try:
        group.mkdir()
        limit = group / "pids.max"
        limit.write_text("max")
    except OSError as error:
        pytest.skip(f"no control group for processes can be made here: {error}")
    try:
        for process in processes_of(home):
            (group / "cgroup.procs").write_text(str(process.pid))
        limit.write_text((group / "pids.current").read_text())
        yield
    finally:
        limit.write_text("max")
        for pid in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):
                (root / "cgroup.procs").write_text(pid)
        until(lambda: _is_removed(group), 20.0, "an empty control group")


def _is_removed(group: Path) -> bool:
    with contextlib.suppress(OSError):
        group.rmdir()
    return not group.exists()


@contextlib.contextmanager
def no_descriptor_to_spare(*pids: int, n_spare: int = 0) -> Iterator[None]:
    """These processes may open nothing more, or only so many."""
    before = {}
    for pid in pids:
        process = psutil.Process(pid)
        looks = [{int(each.name) for each in Path(f"/proc/{pid}/fd").iterdir()} for _ in range(50)]
        taken = set.intersection(*looks)  # some are there for a moment only
        unused = (number for number in itertools.count() if number not in taken)
        free = next(itertools.islice(unused, n_spare, None))
        before[pid] = soft, hard = process.rlimit(resource.RLIMIT_NOFILE)
        assert free < soft
        process.rlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        yield
    finally:
        for pid, limits in before.items():
            psutil.Process(pid).rlimit(resource.RLIMIT_NOFILE, limits)


def _notices(run: Run) -> str:
    return "\n".join(event.text for event in run.events() if isinstance(event, Notice))


def _busy(n: int) -> Run:
    """A run on one of two slots: a rank of another one has to be forked."""
    run = start_search(SLEEPING, n)
    wait_for(run, lambda seen: seen.counts.running == n)
    return run


@pytest.mark.parametrize("what", ["processes", "descriptors"])
def test_ranks_that_can_not_be_started_are_told_with_the_limit_and_come_later(
    own_cluster: Cluster, home: Home, what: str
) -> None:
    busy = _busy(1)
    told, squeeze = {
        "processes": ("processes and threads are in use", lambda: no_process_to_spare(home)),
        "descriptors": (
            "files and sockets open at a time",
            lambda: no_descriptor_to_spare(*(each.pid for each in workers())),
        ),
    }[what]
    with squeeze():
        run = start_search(STEPS, 3)
        until(lambda: told in _notices(run), 60.0, f"a notice of {what}")
        assert "can't start a rank" in _notices(run)
        assert busy.state == "running"
    run.wait(120)
    assert run.state == "complete"
    assert_clean(run, 3)
    assert run.trials["own_failures"].sum() == 0
    assert busy.state == "running"


@pytest.mark.parametrize("n_spare", [0, 2])
def test_a_controller_without_a_descriptor_refuses_what_is_new_and_loses_nothing(
    own_cluster: Cluster, n_spare: int
) -> None:
    running = start_search(STEPS.replace("range(4)", "range(40)"), 4)
    wait_for(running, lambda seen: seen.counts.running == 2)
    with no_descriptor_to_spare(controller_pid(), n_spare=n_spare):
        with pytest.raises(JupyterDDLError) as refused:
            start_search(STEPS, 2)
        assert "files and sockets open at a time" in str(refused.value)
        assert "\n" not in str(refused.value)
        before = running.snapshot().seq
        wait_for(running, lambda seen: seen.seq > before)
    later = start_search(STEPS, 2)
    for run, n in ((running, 4), (later, 2)):
        run.wait(120)
        assert run.state == "complete"
        assert_clean(run, n)


@pytest.fixture
def few_inodes(stopping: Home) -> Iterator[Path]:
    """The home's data on a file system of 200 files."""
    stopping.data.mkdir(mode=0o700)
    options = "size=64m,nr_inodes=200,mode=700"
    mounting = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(stopping.data)]
    if os.getuid() != 0 or subprocess.run(mounting, check=False).returncode != 0:
        pytest.skip("mounting a small file system needs root with CAP_SYS_ADMIN")
    yield stopping.data
    subprocess.run(["umount", "-l", str(stopping.data)], check=True)


def test_a_run_pauses_where_no_inode_is_left_and_goes_on_when_there_are_some(
    few_inodes: Path,
) -> None:
    start_cluster(n_workers=2, name="test")
    run = start_search(STEPS, 12, seed=3)
    ballast = few_inodes / "ballast"
    pauses: list[str] = []

    def watch(seen: RunSnapshot) -> None:
        if seen.counts.complete >= 2 and not ballast.exists() and not pauses:
            ballast.mkdir()
            with contextlib.suppress(OSError):
                for number in itertools.count():
                    (ballast / str(number)).touch()
        elif seen.paused and ballast.exists():
            pauses.append(seen.paused)
            if "no inode is left" in seen.paused:
                for each in ballast.iterdir():
                    each.unlink()
                ballast.rmdir()

    run.wait(120, on_snapshot=watch)
    assert run.state == "complete"
    assert_clean(run, 12)
    assert "no inode is left of 200" in pauses[-1]
    assert run.trials["own_failures"].sum() == 0
