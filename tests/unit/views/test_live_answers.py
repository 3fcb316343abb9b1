"""Ends of logs and outputs of trials, as a view asks for them."""

from __future__ import annotations

import base64
from pathlib import Path

import msgspec
import pytest

from jupyter_ddl.errors import TrialError
from jupyter_ddl.ledger.reducer import fold, fold_all
from jupyter_ddl.ledger.run_state import RunState
from jupyter_ddl.ledger.snapshots import snapshot_of
from jupyter_ddl.protocol.events import (
    AttemptFinished,
    AttemptStarted,
    FoldFinished,
    OutputShown,
    PipelineTimed,
    RankStarted,
    Reported,
    RunStarted,
    RunSubmitted,
    StalenessCounted,
    TrialCreated,
)
from jupyter_ddl.protocol.pipeline import PipelineSpan, PipelineTimes
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.protocol.snapshot import PIPELINE, STALENESS
from jupyter_ddl.protocol.space import Uniform
from jupyter_ddl.protocol.staleness import Staleness
from jupyter_ddl.protocol.view_messages import GetLog, GetOutput
from jupyter_ddl.verbs.ddp import Ddp
from jupyter_ddl.verbs.fit import Fit
from jupyter_ddl.verbs.search import Search
from jupyter_ddl.views.answers import MAX_LOG_BYTES, log_part, output_part

N_TRIALS = 300


@pytest.fixture(scope="module")
def state() -> RunState:
    """A search of which every third trial has lost its attempt and the last one runs."""
    verb = Search("acc", "max", N_TRIALS, {"lr": Uniform(0.0, 1.0)})
    spec = RunSpec("r", verb, Program("x = 1", "In [3]"), 7, "local", 1000.0)
    found = RunState()
    fold(found, RunSubmitted(spec, 1.0))
    fold(found, RunStarted(2.0, 1, 2, 2, 4242))
    for n in range(N_TRIALS):
        params = {"lr": (n * 37 % 300) / 300, "act": "relu" if n % 2 else "tanh"}
        fold(found, TrialCreated(n, params, 2.0))
        fold(found, AttemptStarted(n, 1, 2.0, worker=f"w{n % 2}", pid=9, log="a.log", log_start=0))
        fold(found, Reported(n, 1, 0, {"acc": float(n * 61 % 300)}, 3.0))
        if n < N_TRIALS - 1:
            outcome = "failed" if n % 3 == 0 else "complete"
            value = None if outcome == "failed" else float(n * 61 % 300)
            end = AttemptFinished(n, 1, outcome, 4.0, duration_s=1.0 + n, value=value, log_end=30)
            fold(found, end)
    return found


def test_what_a_trial_shows_comes_as_a_picture_or_as_text(tmp_path: Path) -> None:
    spec = RunSpec("r", Search("acc", "max", 2, {}), Program("", ""), 7, "local", 1.0)
    state = fold_all(
        [
            RunSubmitted(spec, 1.0),
            RunStarted(2.0, 1, 2, 2, 4242),
            TrialCreated(0, {}, 2.0),
            AttemptStarted(0, 1, 2.0, worker="w", pid=9, log="a.log", log_start=0),
            OutputShown(0, 1, "figure", 9, 3.0, ("figure",)),
            OutputShown(0, 1, "table", 9, 4.0, ("figure", "table")),
            OutputShown(0, 1, "large", 9, 5.0, ("figure", "table", "large")),
        ]
    )
    contents = {
        "figure": {"image/png": "iVBO\nRw0=\n", "text/html": "<script>", "text/plain": "Figure"},
        "table": {"text/html": "<script>alert()</script>", "text/plain": "a  b\n\x1b[31mc"},
        "large": {"image/png": "x" * 2_000_000, "text/plain": "Figure"},
    }
    (tmp_path / "outputs").mkdir()
    for name, data in contents.items():
        (tmp_path / "outputs" / name).write_bytes(msgspec.json.encode({"data": data}))

    named = log_part(state, tmp_path, GetLog(1, "r", trial=0)).outputs
    parts = [output_part(state, tmp_path, GetOutput(1, "r", 0, row.file)) for row in named]

    assert [(part.mime, part.content) for part in parts] == [
        ("image/png", "iVBORw0="),
        ("text/plain", "a  b\nc"),
        ("text/plain", "Figure\n(a picture that is too large for here: run.show_outputs())"),
    ]
    for foreign in ("../ledger.ddl", "figure/../table", ""):
        with pytest.raises(TrialError, match="no more"):
            output_part(state, tmp_path, GetOutput(1, "r", 0, foreign))


def test_stages_of_a_pipeline_and_late_gradients_come_as_pictures(tmp_path: Path) -> None:
    """Named in the snapshot with how new they are; described for who can't see them."""
    span = PipelineSpan(0, 0, "forward", 0, 0.0, 1.0)
    times = PipelineTimes(4, 1, "gpipe", 1, (), 0.25, 0.125, (span,), (span,))
    spec = RunSpec("r", Ddp(2), Program("", ""), 7, "local", 1.0)
    begun = [
        RunSubmitted(spec, 1.0),
        RunStarted(2.0, 1, 2, 2, 4242),
        TrialCreated(0, {}, 2.0),
        AttemptStarted(0, 1, 2.0, worker="w", pid=9, log="a.log", log_start=0),
        RankStarted(0, 1, 0, 2.0, "w", "host", 9, "a.log", 0),
    ]
    state = fold_all(begun)
    assert snapshot_of(state, 3.0).charts == ()
    with pytest.raises(TrialError, match="no more"):
        output_part(fold_all(begun[:-1]), tmp_path, GetOutput(1, "r", 0, PIPELINE))
    fold(state, PipelineTimed(0, 1, 3.0, times))
    fold(state, StalenessCounted(0, 1, 3.0, Staleness(0, (5, 2), 1)))
    rows = snapshot_of(state, 3.0).charts
    assert [(row.file, row.at_s) for row in rows] == [(PIPELINE, 4.0), (STALENESS, 8.0)]
    parts = [output_part(state, tmp_path, GetOutput(1, "r", 0, row.file)) for row in rows]
    assert {part.mime for part in parts} == {"image/svg+xml"}
    assert all(base64.b64decode(part.content).startswith(b"<svg ") for part in parts)
    assert "idle for 25 %, at best 13 %" in parts[0].alt
    assert "7 gradients used, 1 dropped" in parts[1].alt


def log_of(state: RunState, folder: Path, **options: object) -> tuple[str, ...]:
    return log_part(state, folder, GetLog(1, "r", **options)).lines  # type: ignore[arg-type]


def test_the_end_of_a_log_is_clean_and_bounded(state: RunState, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    noise = b"\x1b[31mred\x1b[0m\r10%\r100% done\n    indented \xff\x00\x07\n" + b"x" * 5_000_000
    (tmp_path / "logs" / "a.log").write_bytes(
        noise + b"\n" + b"".join(b"%d\n" % k for k in range(9))
    )
    lines = log_of(state, tmp_path, n_lines=10)
    assert lines[-9:] == tuple(str(k) for k in range(9))
    assert log_of(state, tmp_path, contains="4") == ("4",)
    (tmp_path / "logs" / "a.log").write_bytes(noise[:60])
    assert log_of(state, tmp_path)[:2] == ("100% done", "    indented \ufffd")
    (tmp_path / "logs" / "a.log").write_bytes(b"y" * 4000 + (b"\n" + b"y" * 4000) * 400)
    part = log_part(state, tmp_path, GetLog(1, "r", n_lines=500))
    assert len(msgspec.json.encode(part)) <= MAX_LOG_BYTES + 2000
    assert len(part.lines) >= 10
    (tmp_path / "logs" / "a.log").write_bytes(b"begun\n" + b"\r 42% of it" * 60_000)
    assert log_of(state, tmp_path) == (" 42% of it",)


def test_a_trial_has_its_own_piece_of_the_log(state: RunState, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.log").write_text("mine\n" * 6 + "another's\n" * 5)
    assert set(log_of(state, tmp_path, trial=1)) == {"mine"}
    with pytest.raises(TrialError, match="no trial 5000"):
        log_of(state, tmp_path, trial=5000)


def test_a_candidate_of_a_fit_has_what_all_its_folds_printed(tmp_path: Path) -> None:
    spec = RunSpec("f", Fit(), Program("", "fit"), 7, "local", 1000.0)
    state = RunState()
    for event in (
        RunSubmitted(spec, 1.0),
        RunStarted(2.0, 1, 2, 2, 4242),
        TrialCreated(0, {"c": 1.0}, 2.0),
        AttemptStarted(0, 1, 2.0, worker="w", pid=9, log="a.log", log_start=4),
    ):
        fold(state, event)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.log").write_text("xxx\none\ntwo\n")
    (tmp_path / "logs" / "b.log").write_text("first\nxxx\n")
    # As long as no fold is done, what the first one prints now.
    assert log_of(state, tmp_path, trial=0) == ("one", "two")
    for number, log, start, end in ((1, "a.log", 4, 12), (2, "a.log", 12, 12), (0, "b.log", 0, 6)):
        place = {"log": log, "log_start": start, "log_end": end}
        fold(state, FoldFinished(0, number, b"", 3.0, 1.0, **place))  # type: ignore[arg-type]
    assert log_of(state, tmp_path, trial=0) == ("── fold 0", "first", "── fold 1", "one", "two")
    assert log_of(state, tmp_path, trial=0, contains="two") == ("── fold 1", "two")
    assert log_of(state, tmp_path, trial=0, n_lines=2) == ("── fold 1", "one", "two")


def test_no_log_is_no_error(state: RunState, tmp_path: Path) -> None:
    assert log_of(state, tmp_path) == ()
    assert log_of(state, tmp_path, trial=3) == ()
