"""Damaged messages do the view's client no harm: the next whole one is shown."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from jupyter_ddl.views.bundle import LIVE_DIR
from tests.unit.views.node_tools import node

_GOLDEN = Path(__file__).parents[2] / "golden"


def test_the_client_takes_whole_messages_behind_20_000_damaged_ones() -> None:
    driver = Path(__file__).with_name("live_hostile.mjs")
    command = [node(), str(driver), str(LIVE_DIR / "client.js"), str(_GOLDEN), "1", "20000"]
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=240).stdout
    *broken, last = told.splitlines()
    assert broken == []
    seen = json.loads(last)
    assert seen["played"] == 20_000
    assert min(seen["taken"], seen["played"] - seen["taken"]) > 500, "damage that proves nothing"
