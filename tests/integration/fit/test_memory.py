"""Never more copies of the data than hosts: what fits of a large array take on this one."""

from __future__ import annotations

import os
import re
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from tests.leaks import Home, processes_of
from tests.until import until

sys.path.insert(0, str(Path(__file__).parent))

from fit_models import Waiting
from sklearn.model_selection import GridSearchCV

from jupyter_ddl.sklearn_fit.context import distributed_fits
from jupyter_ddl.sklearn_fit.exchange import FitSetting

pytestmark = pytest.mark.integration

FOLDER = Path(__file__).parent
SIZE = 60 << 20
_MAPPING = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) \S+ \S+ (\S+) (\d+)")


def _private_bytes(process: psutil.Process) -> int:
    """Memory that belongs to a process alone; a page of several ones belongs to each in part."""
    text = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
    return sum(int(kb) << 10 for kb in re.findall(r"^(?:Pss_Anon|SwapPss): +(\d+) kB", text, re.M))


def _large_files(process: psutil.Process) -> set[tuple[str, str]]:
    """Device and inode of the files of the data's size that a process has mapped."""
    lines = Path(f"/proc/{process.pid}/maps").read_text().splitlines()
    found = (match.groups() for line in lines if (match := _MAPPING.match(line)) is not None)
    return {
        (device, inode)
        for start, end, device, inode in found
        if inode != "0" and int(end, 16) - int(start, 16) >= SIZE
    }


def _stored_bytes(home: Home) -> int:
    """Of all files of this home, in memory and on disk."""
    files = [*home.memory.rglob("*"), *home.data.rglob("*")]
    return sum(path.stat().st_blocks * 512 for path in files if path.is_file())


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux's /proc")
def test_there_is_one_copy_of_the_data_for_all_ranks_of_a_host(
    own_cluster: Any, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(FOLDER)
    rows = np.random.default_rng(0).random((SIZE // 8 // 250, 250))
    y = np.arange(len(rows)) % 2
    small = np.arange(20)
    # What a fold takes of the data is a copy of its own: here, a few rows.
    folds = [(small[:10], small[10:]), (small[10:], small[:10])]
    seen: dict[str, Any] = {}

    def poll() -> None:
        try:
            until(lambda: len(list(tmp_path.glob("begun-[12]*"))) == 2, 60, "both ranks fit")
            ranks = {int(path.name.split("-")[2]) for path in tmp_path.glob("begun-[12]*")}
            there = processes_of(home)
            seen["private"] = sum(map(_private_bytes, there))
            seen["stored"] = _stored_bytes(home)
            seen["files"] = {process.pid: _large_files(process) for process in there}
            seen["ranks"] = ranks
        finally:
            (tmp_path / "go").touch()

    with distributed_fits(FitSetting(namespace=globals(), folder=FOLDER)):
        # The same with few rows: processes are there, and have imported what they need.
        waiting = Waiting(folder=str(tmp_path))
        search = GridSearchCV(waiting, {"c": [0.0, 0.5]}, cv=folds, refit=False)
        search.fit(rows[:20], y[:20])
        private, stored = sum(map(_private_bytes, processes_of(home))), _stored_bytes(home)
        looker = threading.Thread(target=poll)
        looker.start()
        search.set_params(param_grid={"c": [1.0, 2.0]}).fit(rows, y)
        looker.join()
    assert os.getpid() not in seen["files"]
    assert len(seen["ranks"]) == 2
    mapped = [seen["files"][rank] for rank in seen["ranks"]]
    assert len(mapped[0]) == 1
    assert mapped[0] == mapped[1]
    assert set.union(*seen["files"].values()) == mapped[0]
    # All that is stored, and all that processes have for themselves: one copy, and little else.
    assert SIZE <= seen["stored"] - stored < SIZE * 1.1
    assert seen["private"] - private < SIZE * 0.25
