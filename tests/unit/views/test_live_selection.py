"""One selection for all parts of a view: the real modules on random searches."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from jupyter_ddl.views.bundle import LIVE_DIR
from tests.unit.views.node_tools import node


def test_a_part_of_an_axis_chooses_what_lies_in_it_and_a_click_opens_whose_mark_it_is() -> None:
    driver = Path(__file__).with_name("live_selection.mjs")
    done = subprocess.run(
        [node(), str(driver), str(LIVE_DIR), "7", "400"],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    found = json.loads(done.stdout)
    assert found["wrong"] == []
    assert found["nMarks"] > 3000
