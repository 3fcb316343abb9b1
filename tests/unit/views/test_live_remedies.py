"""Which buttons a run has, and which stand beside what is wrong with it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from jupyter_ddl.views.bundle import LIVE_DIR
from tests.unit.views.node_tools import node

_CALLER = Path(__file__).with_name("live_remedies.mjs")
_ALL = ["keep_best", "epoch", "next_report", "now"]
_KEPT = (
    "every slot is kept by `%%distribute run` (r1-abc); `%runs stop r1-abc` ends that group, "
    "`%cluster scale N` adds slots"
)


def _called(module: str, *calls: list[Any]) -> list[Any]:
    done = subprocess.run(
        [node(), _CALLER, LIVE_DIR / module],
        input=json.dumps(calls),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    found: list[Any] = json.loads(done.stdout)
    return found


def _shot(**fields: Any) -> dict[str, Any]:
    can = {"stops": _ALL, "can_resume": True, "has_cells": False} | fields.pop("can", {})
    known = {"run_id": "r1", "state": "running", "driver": "live", "paused": "", "cluster": "c"}
    return known | {"checkpoint_step": None, "can": can} | fields


@pytest.mark.parametrize(
    ("shot", "is_stopping", "main", "others"),
    [
        (_shot(), False, "next_report", ["keep_best", "epoch", "now"]),
        (_shot(can={"stops": ["next_report", "now"]}), False, "next_report", ["now"]),
        (_shot(), True, "now", []),
        (_shot(can={"has_cells": True, "stops": ["next_report", "now"]}), False, "now", []),
        (_shot(state="complete"), False, None, []),
        (_shot(driver="none"), False, None, []),
        (_shot(driver="recovering"), True, None, []),
    ],
)
def test_one_button_stops_a_run_and_the_others_stand_behind_it(
    shot: dict[str, Any], is_stopping: bool, main: str | None, others: list[str]
) -> None:
    [found] = _called("actions.js", ["stopsOf", shot, is_stopping])
    assert (found["main"], found["others"]) == (main, others)


@pytest.mark.parametrize(
    ("shot", "goes_on"),
    [
        (_shot(), False),
        (_shot(driver="none"), True),
        (_shot(driver="recovering"), False),
        (_shot(state="failed"), True),
        (_shot(state="cancelled"), True),
        (_shot(state="complete"), False),
        (_shot(state="failed", can={"can_resume": False}), False),
    ],
)
def test_a_run_that_could_go_on_and_does_not_can_be_resumed(
    shot: dict[str, Any], goes_on: bool
) -> None:
    assert _called("actions.js", ["canGoOn", shot]) == [goes_on]


def test_what_resuming_says_has_the_step_of_the_checkpoint() -> None:
    start, step = _called(
        "remedies.js",
        ["resuming", _shot(state="failed")],
        ["resuming", _shot(state="failed", checkpoint_step=1200)],
    )
    assert (start["label"], step["label"]) == ("Resume", "Resume from step 1,200")
    assert step["request"] == {"kind": "resume_run", "run_id": "r1"}


def test_a_run_that_waits_has_buttons_in_place_of_what_to_type() -> None:
    [found] = _called("remedies.js", ["forWaiting", _shot(paused=_KEPT), {"scale": True}])
    release, scale = found
    assert release["request"] == {"kind": "stop_run", "run_id": "r1-abc", "how": "now"}
    assert release["confirm"]
    assert scale["host"] == "scale"
    [text] = _called("remedies.js", ["withoutAdvice", _KEPT, found])
    assert text == "every slot is kept by `%%distribute run` (r1-abc)"


def test_where_nothing_can_be_done_the_sentence_stays_as_it_is() -> None:
    [found] = _called("remedies.js", ["forWaiting", _shot(paused=_KEPT), {}])
    [text] = _called("remedies.js", ["withoutAdvice", _KEPT, found])
    assert (found, text) == ([], _KEPT)


def test_a_run_that_nothing_drives_has_a_button_that_starts_its_cluster() -> None:
    shot = _shot(driver="none", paused="nothing drives this run now")
    [[found], none] = _called(
        "remedies.js",
        ["forWaiting", shot, {}],
        ["forWaiting", {**shot, "can": {**shot["can"], "can_resume": False}}, {}],
    )
    assert found["request"] == {"kind": "resume_run", "run_id": "r1"}
    assert none == []


def test_stacks_are_offered_where_a_hang_has_left_some() -> None:
    with_stacks, without, none = _called(
        "remedies.js",
        ["forHang", {"stacks_file": "stacks/0-a1"}],
        ["forHang", {"stacks_file": ""}],
        ["forHang", None],
    )
    assert [each["shows"] for each in with_stacks] == ["stacks"]
    assert without == none == []
