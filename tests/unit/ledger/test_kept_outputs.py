"""What a run keeps of the figures and tables that its trials show."""

from __future__ import annotations

import pytest

from jupyter_ddl.ledger import outputs
from jupyter_ddl.ledger.reducer import fold, fold_all
from jupyter_ddl.ledger.run_state import RunState
from jupyter_ddl.ledger.snapshots import encoded_snapshot, snapshot_of
from jupyter_ddl.protocol.events import OutputShown
from tests.unit.ledger.event_makers import begun, created, ended, map_spec, started, submitted

AT = 1010.0


def shown(trial: int, number: int, *files: str, size: int = 1000, attempt: int = 1) -> OutputShown:
    names = files or (f"{trial}-{number}",)
    return OutputShown(trial, attempt, f"{trial}-{number}", size, AT + number, names)


def running(*trials: int) -> RunState:
    return fold_all(
        [submitted(), started(), *(e for trial in trials for e in (created(trial), begun(trial)))]
    )


def test_the_newest_list_of_a_trial_counts_and_what_it_leaves_out_is_removed() -> None:
    state = running(0)
    fold(state, shown(0, 1))
    fold(state, shown(0, 2, "0-1", "0-2"))
    assert list(state.outputs[0]) == ["0-1", "0-2"]
    assert state.output_bytes == 2000

    fold(state, shown(0, 3, "0-3"))

    assert list(state.outputs[0]) == ["0-3"]
    assert state.unkept == ["0-1", "0-2"]
    assert state.output_bytes == 1000


def test_another_attempt_begins_with_nothing_and_late_outputs_do_not_count() -> None:
    state = running(0)
    fold(state, shown(0, 1))
    fold(state, ended(0, outcome="evicted"))
    assert 0 in state.outputs

    fold(state, begun(0, attempt=2))
    fold(state, shown(0, 2, attempt=1))

    assert state.outputs == {}
    assert state.unkept == ["0-1"]
    assert state.n_late == 1
    assert state.output_bytes == 0


def test_too_much_drops_the_oldest_trials_but_not_the_best_and_says_so_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outputs, "MAX_RUN_BYTES", 3500)
    state = running(0, 1, 2, 3, 4, 5)
    for trial, value in ((0, 9.0), (1, 1.0), (2, 1.0), (3, 1.0), (4, 1.0)):
        fold(state, shown(trial, 1))
        fold(state, ended(trial, value=value))
    assert sorted(state.outputs) == [0, 3, 4]

    fold(state, shown(5, 1))

    assert sorted(state.outputs) == [0, 4, 5]
    assert state.unkept == ["1-1", "2-1", "3-1"]
    assert [text for text in state.notices if "oldest are dropped" in text] == list(state.notices)
    assert len(state.notices) == 1


def test_a_view_shows_the_best_trials_outputs_and_counts_all() -> None:
    state = running(0, 1)
    fold(state, shown(0, 1))
    fold(state, shown(1, 1))
    assert snapshot_of(state, AT).outputs == ()
    fold(state, ended(0, value=2.0))
    fold(state, ended(1, value=1.0))

    drawn = snapshot_of(state, AT)

    assert [(row.trial, row.file) for row in drawn.outputs] == [(0, "0-1")]
    assert drawn.n_outputs == 2


def test_a_view_of_elements_shows_the_newest_ones_in_order() -> None:
    state = fold_all([submitted(map_spec(30)), started()])
    for item in range(30):
        for event in (created(item), begun(item), shown(item, 1), ended(item)):
            fold(state, event)

    drawn = snapshot_of(state, AT)

    assert [row.trial for row in drawn.outputs] == list(range(20, 30))
    assert drawn.n_outputs == 30
    assert len(encoded_snapshot(state, AT).json) < 64_000
