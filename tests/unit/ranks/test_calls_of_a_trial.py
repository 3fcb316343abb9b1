"""What every trial pays in its rank, however little its cell does: counted, since times differ."""

from __future__ import annotations

import gc
import math
import sys
from collections import Counter
from types import FrameType
from typing import Any

import pytest

from jupyter_ddl.ranks import process_state
from jupyter_ddl.ranks.settings import RankSettings
from tests.unit.ranks.conftest import placeholder

_CELL = "from jupyter_ddl import uniform\nx = uniform(0.0, 1.0)\nacc = x\n"


def _called(rank: Any) -> Counter[str]:
    """Python functions that a trial calls, by name."""
    names: Counter[str] = Counter()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            names[f"{frame.f_globals.get('__name__')}.{frame.f_code.co_qualname}"] += 1

    gc.disable()  # what it would finalize is other tests'
    sys.setprofile(note)
    try:
        rank.run(1, params={"x": 0.5})
    finally:
        sys.setprofile(None)
        gc.enable()
    return names


def test_a_trial_that_does_nothing_calls_few_functions(
    host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine it may take as long as one whose settings are compared.
    monkeypatch.setattr(process_state, "_COMPARE_AFTER_S", math.inf)
    monkeypatch.setattr(process_state, "_COLLECT_AFTER_S", math.inf)
    rank = host.load(_CELL, metric="acc", program={"placeholders": (placeholder(_CELL, "x"),)})
    rank.run(0, params={"x": 0.25})  # what the first one does once
    called = _called(rank)
    ours = sum(n for name, n in called.items() if name.startswith("jupyter_ddl."))
    assert ours <= 72, "\n".join(f"{n} {name}" for name, n in called.most_common())
    # Each variable of the environment would be some calls, each path a dozen.
    assert not [name for name in called if name.startswith(("pathlib.", "os."))]


def test_only_a_process_of_several_trials_keeps_the_settings_of_all_libraries(
    host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[RankSettings] = []
    monkeypatch.setattr(RankSettings, "keep", lambda settings: kept.append(settings))
    host.load(_CELL, metric="acc", fresh_process=True)
    assert kept == []
    host.load(_CELL, metric="acc")
    assert len(kept) == 1
