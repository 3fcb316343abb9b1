"""The command that plays worlds, and what the worlds have to notice."""

from __future__ import annotations

import pytest

from jupyter_ddl.driving.fits import FitMachine
from jupyter_ddl.testing import interleave
from jupyter_ddl.testing.fit_world import fit_story


def test_every_seed_is_played_once_in_portions(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    played: list[int] = []

    def play(seed: int) -> tuple[int, int]:
        played.append(seed)
        assert seed != 300, "this one fails"
        return 2, 3

    monkeypatch.setitem(interleave.SCENARIOS, "group", play)
    monkeypatch.setattr(interleave, "_PORTION", 7)
    asked = ["--kind", "group", "--seed", "3", "--count", "600", "--keep-going"]
    assert interleave.main(asked) == 1
    assert played == list(range(3, 603))
    told = capsys.readouterr().out
    assert "group: this one fails" in told
    assert "1198 events" in told
    assert "1797 steps" in told


def test_an_outcome_that_is_told_before_it_is_on_record_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(FitMachine, "_deliver", lambda _, batch, unit: batch.deliver(unit))
    with pytest.raises(AssertionError, match="told before it was on record"):
        fit_story(1)
