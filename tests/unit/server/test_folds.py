"""Folded runs are kept, follow their ledgers, and take no path from a browser."""

from __future__ import annotations

import os
from typing import Any

import pytest

from jupyter_ddl.errors import JupyterDDLError, RunNotFoundError
from jupyter_ddl.server import run_list as folds
from jupyter_ddl.server.run_list import Folds
from jupyter_ddl.store.paths import home_dir, ledger_path
from tests.unit.server.test_run_listing import STARTED, go_on, record, trial


def n_finished(state: Any) -> int:
    return int(state.n_finished)


def test_a_fold_follows_its_ledger(home: Any) -> None:
    record("r1", STARTED, *trial(0, 0.1))
    kept = Folds()
    assert kept.poll("r1", n_finished) == 1
    go_on("r1", *trial(1, 0.2))
    assert kept.poll("r1", n_finished) == 2


def test_a_ledger_that_is_cut_short_or_removed_is_not_remembered(home: Any) -> None:
    record("r1", STARTED, *trial(0, 0.1))
    kept = Folds()
    assert kept.poll("r1", n_finished) == 1
    os.truncate(ledger_path("r1"), ledger_path("r1").stat().st_size - 3)
    assert kept.poll("r1", n_finished) == 0
    ledger_path("r1").unlink()
    with pytest.raises(RunNotFoundError, match="there is no run r1"):
        kept.poll("r1", n_finished)


def test_only_some_runs_are_kept_in_memory(home: Any) -> None:
    kept = Folds()
    for number in range(folds._N_KEPT + 5):
        record(f"r{number}", STARTED)
        kept.poll(f"r{number}", n_finished)
    assert len(kept._entries) == folds._N_KEPT
    assert kept.poll("r0", n_finished) == 0


def test_a_damaged_ledger_is_refused_and_begun_anew_when_it_is_repaired(home: Any) -> None:
    record("r1", STARTED, *trial(0, 0.1))
    whole = ledger_path("r1").read_bytes()
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 0xFF
    ledger_path("r1").write_bytes(damaged)
    kept = Folds()
    with pytest.raises(JupyterDDLError):
        kept.poll("r1", n_finished)
    ledger_path("r1").write_bytes(whole)
    assert kept.poll("r1", n_finished) == 1


@pytest.mark.parametrize(
    "run_id",
    ["", "..", "../r1", "r1/../r1", "/etc", "r1\x00", "r 1", "r1.", "ä1", "r" * 81, "-", "r1\n"],
)
def test_what_can_be_no_run_id_never_becomes_a_path(
    run_id: str, home: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    record("r1", STARTED)
    monkeypatch.setattr(folds, "ledger_path", lambda _: pytest.fail("it became a path"))
    with pytest.raises(RunNotFoundError, match="there is no run"):
        Folds().poll(run_id, n_finished)


def test_a_run_that_is_not_there_is_refused(home: Any) -> None:
    home_dir()
    with pytest.raises(RunNotFoundError, match="there is no run r1121-none"):
        Folds().poll("r1121-none", n_finished)
