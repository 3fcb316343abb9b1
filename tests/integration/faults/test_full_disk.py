"""A full disk below the run directory: the run pauses, says why, and goes on."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_ddl.client.clusters import start_cluster
from jupyter_ddl.protocol.snapshot import RunSnapshot
from tests.leaks import Home
from tests.run_tools import STEPS, assert_clean, fill, start_search

pytestmark = pytest.mark.integration


@pytest.fixture
def small_disk(stopping: Home) -> Iterator[Path]:
    """The home's data on a file system of 8 MB."""
    stopping.data.mkdir(mode=0o700)
    mounting = ["mount", "-t", "tmpfs", "-o", "size=8m,mode=700", "tmpfs", str(stopping.data)]
    if os.getuid() != 0 or subprocess.run(mounting, check=False).returncode != 0:
        pytest.skip("mounting a small file system needs root with CAP_SYS_ADMIN")
    yield stopping.data
    subprocess.run(["umount", "-l", str(stopping.data)], check=True)


def test_a_run_pauses_on_a_full_disk_and_goes_on_when_there_is_room(small_disk: Path) -> None:
    start_cluster(n_workers=2, name="test")
    run = start_search(STEPS, 20, seed=3)
    ballast = small_disk / "ballast"
    pauses: list[str] = []

    def watch(seen: RunSnapshot) -> None:
        if seen.counts.complete >= 4 and not ballast.exists() and not pauses:
            fill(ballast)
        elif seen.paused and ballast.exists():
            pauses.append(seen.paused)
            if "bytes" in seen.paused:
                ballast.unlink()

    run.wait(60, on_snapshot=watch)
    assert run.state == "complete"
    assert_clean(run, 20)
    assert "No space left on device" in pauses[-1]
    assert " bytes free" in pauses[-1]
    assert "the run goes on when there is room" in pauses[-1]
    assert run.trials["own_failures"].sum() == 0
    assert run.snapshot().paused == ""
