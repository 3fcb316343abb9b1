"""A persistent group that hangs while it opens."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path

import pytest

from jupyter_ddl.client.clusters import start_cluster
from jupyter_ddl.client.group import RankGroup, open_group
from tests.leaks import Home
from tests.until import until

pytestmark = pytest.mark.integration

SLOW = """import os
try:
    os.close(os.open({first!r}, os.O_CREAT | os.O_EXCL))
    open({gate!r}).close()
except FileExistsError:
    pass
def load():
    pass
"""
"""The first one to import it waits until somebody opens the gate."""


def test_who_waits_for_a_rank_whose_imports_hang_is_told_with_the_line(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch imports what packages have registered with it: on one of two workers, that hangs."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    slow = tmp_path / "slow_backend.py"
    slow.write_text(SLOW.format(first=str(tmp_path / "first"), gate=str(gate)))
    about = tmp_path / "slow_backend-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: slow-backend\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[torch.backends]\nslow = slow_backend:load\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    cluster = start_cluster(n_workers=2, name="test")
    notes: list[str] = []
    opened: list[RankGroup] = []
    thread = threading.Thread(
        target=lambda: opened.append(open_group(2, env_check="off", on_notice=notes.append))
    )
    thread.start()
    try:
        # On a busy host torch itself may not be there when it is told first, nor the other rank's.
        line = f"at line 4 of {slow} on 127.0.0.1"
        (note, *_) = until(lambda: [each for each in notes if line in each], 40, "a notice")
        assert re.match(r"(rank [01] is|ranks 0-1 are) still loading what (it needs|they)", note)
    finally:
        os.close(os.open(gate, os.O_RDWR))
        thread.join()
        cluster.stop()
    assert opened[0].n_ranks == 2
