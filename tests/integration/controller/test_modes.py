"""What a run writes is its user's alone, whatever files are made like in the notebook."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_ddl.client.api import map_cell
from jupyter_ddl.client.clusters import start_cluster
from tests.leaks import Home

pytestmark = pytest.mark.integration

_CELL = """
from jupyter_ddl import checkpoint, report
print("a line of its log")
report(step=0, twice=2 * item)
checkpoint(step=0, item=item)
2 * item
"""


@pytest.fixture
def open_to_all(home: Home) -> Iterator[Home]:
    before = os.umask(0)
    yield home
    os.umask(before)


def test_nobody_else_may_read_or_write_what_a_run_and_its_cluster_leave(open_to_all: Home) -> None:
    cluster = start_cluster(n_workers=1, name="test")
    try:
        run = map_cell(_CELL, [1, 2], namespace={}, env_check="off")
        assert run.values == [2, 4]
        modes = _modes(open_to_all.data) | _modes(open_to_all.runtime / "jupyter_ddl")
    finally:
        cluster.stop()
    assert {"ledger.ddl", "test.json"} <= {path.name for path in modes}
    assert any("checkpoint" in str(path) for path in modes)
    assert [path for path, mode in modes.items() if mode & 0o077] == []


def _modes(folder: Path) -> dict[Path, int]:
    found = {}
    for path in (folder, *folder.rglob("*")):
        with contextlib.suppress(FileNotFoundError):  # what was written anew meanwhile
            found[path] = 0 if path.is_symlink() else path.stat().st_mode
    return found
