"""Recordings in a kernel: the player for people, static output for programs, no cluster at all."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jupyter_ddl.views.display import RUN_MIME
from jupyter_ddl.views.widget import WIDGET_MIME
from tests.kernel.front_end import FrontEnd
from tests.live_kernel import LiveKernel

pytestmark = pytest.mark.kernel

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
SEARCH = str(EXAMPLES / "search-500-trials.jsonl.gz")
REPLAY = f"import jupyter_ddl as ddl\nddl.replay({SEARCH!r}, speed=16)"


def test_a_person_gets_the_player_and_static_output_at_the_end(idle_kernel: LiveKernel) -> None:
    end = FrontEnd(idle_kernel)
    assert end.finish(end.start(REPLAY))["status"] == "ok"
    bundle = end.bundles[-1]
    assert set(bundle) == {RUN_MIME, WIDGET_MIME, "text/html", "text/plain"}
    assert bundle[WIDGET_MIME]["model_id"] == end.comm_id
    assert bundle[RUN_MIME]["speed"] == 16.0
    assert re.fullmatch("[0-9a-f]{64}", bundle[RUN_MIME]["timeline"])  # the panel's server has it
    assert (end.state["run_id"], end.state["speed"]) == ("r1121-500tr", 16.0)
    assert "timeline" not in end.state  # its bytes travel beside the text

    end.send({"kind": "have", "seq": 0})
    end.send({"kind": "seen", "run_id": "r1121-500tr"})
    end.until(lambda: end.comm_id in end.closed, "the player's end")
    end.until(lambda: end.bundles[-1] is not bundle, "the static output")
    assert set(end.bundles[-1]) == {"text/html", "text/plain"}
    assert "Simulated run, played from a recording." in end.bundles[-1]["text/html"]


def test_a_program_gets_the_static_output_at_once(idle_kernel: LiveKernel) -> None:
    for code in (REPLAY, f"%runs replay {SEARCH} --speed 2"):
        done = idle_kernel.run(code).check()
        assert set(done.displays[-1]) == {"text/html", "text/plain"}
        assert "500 of 500 trials" in done.displays[-1]["text/plain"]
        assert "Simulated run" in done.displays[-1]["text/plain"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("%runs replay nowhere.jsonl", "there is no such file; `%runs export RUN FILE.jsonl`"),
        (f"%runs replay {SEARCH} --speed 0", "speed is 0.0; give more than 0 and at most 1000"),
        ("%runs replay", "the following arguments are required: FILE"),
        ("%runs export nothing demo.jsonl", "nothing"),
    ],
)
def test_what_can_not_be_played_is_one_line(
    idle_kernel: LiveKernel, line: str, message: str
) -> None:
    done = idle_kernel.run(line)
    text = done.stderr.strip() if done.error is None else done.error[1]
    assert message in text
    assert "\n" not in text
    assert "DDL-" in text
