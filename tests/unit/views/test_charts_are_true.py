"""Whatever a run reports: what charts draw stands where its value is, or is marked as outside."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from jupyter_ddl.views.bundle import LIVE_DIR
from tests.unit.views.node_tools import node

N_RUNS = 10_000
_DRIVER = Path(__file__).with_name("live_charts.mjs")


def test_no_mark_of_the_live_view_stands_where_its_value_is_not() -> None:
    command = [node(), str(_DRIVER), str(LIVE_DIR), "20", str(N_RUNS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["name"] for each in told] == ["lines", "watched", "replayed", "parallel", "strips"]
    assert [each for each in told if each["wrong"]] == []
    # And the runs were such that it could have gone wrong.
    marks = {each["name"]: each["nMarks"] for each in told}
    assert min(marks.values()) > 3_000
    assert told[0]["nOutside"] > 10_000
