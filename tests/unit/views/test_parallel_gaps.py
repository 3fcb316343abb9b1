"""Lines of parallel coordinates, in Node: a trial has a gap where it lacks a parameter."""

from __future__ import annotations

import json
import subprocess

from jupyter_ddl.views.bundle import LIVE_DIR
from tests.unit.views.node_tools import node

_DRIVER = """
const [{ paramNames }, { strand }] = await Promise.all(
  ["columns", "strands"].map((name) => import(`${process.argv[1]}/${name}.js`)),
);
const { rows, lines } = JSON.parse(process.argv[2]);
console.log(JSON.stringify({ names: paramNames(rows), paths: lines.map(strand) }));
"""


def test_a_line_ends_before_a_gap_and_begins_anew_behind_it() -> None:
    whole = [[0, 1], [10, 2], [20, 3]]
    gap = [[0, 1], [10, 2], None, [30, 3], [40, 4]]
    alone = [None, [10, 2], None, [30, 3]]
    rows = [
        {"params": {"m": "mean"}},
        {"params": {"m": "svm", "C": 1, "g": 2}},
        {"params": {"k": 1}},
    ]
    asked = json.dumps({"rows": rows, "lines": [whole, gap, alone]})
    done = subprocess.run(
        [node(), "--input-type=module", "-e", _DRIVER, str(LIVE_DIR), asked],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    found = json.loads(done.stdout)
    assert found["names"] == ["m", "C", "g", "k"]
    paths = found["paths"]
    assert [path.count("M") for path in paths] == [1, 2, 2]
    assert [path.count("C") for path in paths] == [2, 2, 0]
    assert paths[1].startswith("M0.0 1.0C")
    assert "M30.0 3.0C" in paths[1]
    assert paths[2] == "M6.0 2.0H14.0M26.0 3.0H34.0"
