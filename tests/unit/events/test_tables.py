"""A run becomes rows, JSON lines, and events again."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from event_makers import (
    begun,
    checkpointed,
    created,
    ended,
    reported,
    search_spec,
    started,
    submitted,
    twenty_events,
)

from jupyter_ddl.errors import ProtocolError
from jupyter_ddl.events.export import export_jsonl, read_jsonl
from jupyter_ddl.events.ledger import LedgerWriter
from jupyter_ddl.events.messages import Event, Notice, Reported, RunSubmitted, TrialCreated
from jupyter_ddl.events.reducer import fold_all
from jupyter_ddl.events.tables import metrics_table, trials_table
from jupyter_ddl.spec.program import Program
from jupyter_ddl.spec.run import RunSpec, SearchSpec
from jupyter_ddl.spec.space import Choice


def test_trials_become_rows_with_one_column_per_parameter() -> None:
    events: list[Event] = [submitted(), started(), created(1, lr=0.1), created(0, lr=0.2)]
    events += [begun(0), ended(0, 1, "evicted"), begun(0, 2), ended(0, 2, value=0.9)]
    rows = trials_table(events)
    assert rows == trials_table(fold_all(events))
    assert rows[0] == {
        "number": 0,
        "state": "complete",
        "lr": 0.2,
        "value": 0.9,
        "attempts": 2,
        "own_failures": 0,
        "evictions": 1,
        "worker": "worker-1",
        "started_at_s": 1003.0,
        "duration_s": 2.0,
    }
    assert (rows[1]["number"], rows[1]["state"], rows[1]["value"]) == (1, "waiting", None)


def test_a_parameter_that_would_hide_a_column_gets_a_prefix() -> None:
    rows = trials_table([submitted(), started(), TrialCreated(0, {"value": 3, "lr": 1.0}, 1.0)])
    assert (rows[0]["param_value"], rows[0]["value"], rows[0]["lr"]) == (3, None, 1.0)


def test_metrics_become_rows_of_the_attempts_that_count() -> None:
    events: list[Event] = [submitted(), started(), created(0), created(1), begun(0), begun(1)]
    events += [reported(0, 1, step, acc=step / 10) for step in (0, 1, 2, 3)]
    events += [checkpointed(0), ended(0, 1, "evicted"), begun(0, 2)]
    events += [reported(0, 1, 99, acc=9.9)]  # late
    events += [reported(0, 2, step, acc=step / 10) for step in (2, 3)]
    events += [ended(0, 2), reported(0, 2, 98), Reported(1, 1, 0, {"step": 7.0}, 1.0)]
    rows = metrics_table(events)
    assert [(row["trial"], row["attempt"], row["step"]) for row in rows] == [
        (0, 1, 0),
        (0, 1, 1),
        (0, 2, 2),
        (0, 2, 3),
        (1, 1, 0),
    ]
    assert rows[2] == {"trial": 0, "attempt": 2, "step": 2, "acc": 0.2}
    assert rows[4] == {"trial": 1, "attempt": 1, "step": 0, "metric_step": 7.0}


def test_an_attempt_that_began_anew_replaces_the_one_before() -> None:
    events: list[Event] = [submitted(), started(), created(0), begun(0), reported(0, 1, 0, acc=0.1)]
    events += [reported(0, 1, 1, acc=0.2), ended(0, 1, "failed"), begun(0, 2)]
    assert [row["attempt"] for row in metrics_table(events)] == [1, 1]
    events += [reported(0, 2, 0, acc=0.3)]
    rows = metrics_table(events)
    assert rows == [{"trial": 0, "attempt": 2, "step": 0, "acc": 0.3}]


def _ledger(path: Path, events: list[Event]) -> Path:
    with LedgerWriter.open(path, create=True) as writer:
        writer.append(events)
    return path


def test_an_exported_run_is_strict_json_and_can_be_replayed(tmp_path: Path) -> None:
    verb = SearchSpec("acc", "max", 4, {"clip": Choice((1.0, math.inf)), "norm": Choice(("NaN?",))})
    spec = RunSpec("r1", verb, Program("NaN", "In [1]"), 7, "local", 1.0, name="Infinity")
    events: list[Event] = [
        RunSubmitted(spec, 1.0),
        started(),
        TrialCreated(0, {"clip": math.inf, "norm": "NaN?"}, 1.0),
        begun(0),
        reported(0, loss=-math.inf),
        ended(0, value=math.inf),
        Notice(1.0, "NaN"),
    ]
    ledger = _ledger(tmp_path / "ledger.ddl", events)
    out = tmp_path / "run.jsonl"
    assert export_jsonl(ledger, out) == 7

    def refuse(word: str) -> None:
        raise AssertionError(word)

    lines = [json.loads(line, parse_constant=refuse) for line in out.read_text().splitlines()]
    assert [line["type"] for line in lines][:3] == ["run_submitted", "run_started", "trial_created"]
    assert lines[4]["metrics"] == {"loss": "-Infinity"}
    assert list(read_jsonl(out)) == events
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "ledger.ddl",
        "ledger.ddl.lock",
        "run.jsonl",
    ]


def test_replayed_nan_metrics_are_numbers(tmp_path: Path) -> None:
    ledger = _ledger(tmp_path / "ledger.ddl", [submitted(), reported(0, acc=math.nan)])
    export_jsonl(ledger, tmp_path / "run.jsonl")
    last = list(read_jsonl(tmp_path / "run.jsonl"))[-1]
    assert math.isnan(last.metrics["acc"])


def test_replay_folds_to_the_same_run(tmp_path: Path) -> None:
    ledger = _ledger(tmp_path / "ledger.ddl", twenty_events())
    export_jsonl(ledger, tmp_path / "run.jsonl")
    replayed = fold_all(read_jsonl(tmp_path / "run.jsonl"))
    assert replayed.snapshot(2000.0) == fold_all(twenty_events()).snapshot(2000.0)


@pytest.mark.parametrize("line", ["{", "[1]", '{"type": "notice"}', '{"type": "reported"}', "7"])
def test_a_line_that_is_no_event_is_named(tmp_path: Path, line: str) -> None:
    out = tmp_path / "run.jsonl"
    export_jsonl(_ledger(tmp_path / "ledger.ddl", [submitted(search_spec())]), out)
    out.write_text(out.read_text() + line + "\n")
    with pytest.raises(ProtocolError, match=r"line 2 of .*run\.jsonl"):
        list(read_jsonl(out))
