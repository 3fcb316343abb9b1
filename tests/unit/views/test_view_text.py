from __future__ import annotations

import unicodedata
from typing import get_args

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tests.unit.views.view_samples as samples
from jupyter_ddl.protocol.events import Failure, FailureKind
from jupyter_ddl.protocol.snapshot import BestTrial, Counts
from jupyter_ddl.protocol.verb import load_verb
from jupyter_ddl.views import render_html, render_line, render_text
from jupyter_ddl.views.drawing import bar, cell_width, cut, to_ascii
from jupyter_ddl.views.text import MIN_WIDTH
from tests.unit.views.view_payloads import PAYLOADS

replace = msgspec.structs.replace
MID = samples.search()


@example(name="00\u094d", width=1, ascii_only=True)  # a combining mark takes no cell
@given(name=st.text(max_size=200), width=st.integers(1, 200), ascii_only=st.booleans())
@settings(deadline=None)
def test_no_line_is_wider_than_the_terminal(name: str, width: int, ascii_only: bool) -> None:
    best = BestTrial(number=3, params={name: name}, value=0.5)
    row = replace(MID.rows[0], params={name: name, "b": name})
    snapshot = replace(
        MID, name=name, cluster=name, metric=name, best=best, notices=(name,), paused=name,
        rows=(row, *MID.rows[1:]),
    )  # fmt: skip
    lines = render_text(snapshot, samples.NOW_S, width, ascii_only=ascii_only).split("\n")
    lines.append(render_line(snapshot, samples.NOW_S, width, ascii_only=ascii_only))
    assert max(cell_width(line) for line in lines) <= max(MIN_WIDTH, width)


def test_text_from_users_cannot_steer_the_terminal() -> None:
    for payload in (*PAYLOADS, "\r\x1b[2J\x9b31m\x07\u2028\u202e"):
        snapshot = replace(MID, name=payload, notices=(payload,), paused=payload, cluster=payload)
        text = render_text(snapshot, samples.NOW_S) + render_line(snapshot, samples.NOW_S)
        steering = [c for c in text if unicodedata.category(c) in {"Cc", "Cs", "Zl"} and c != "\n"]
        assert steering == [], payload
        assert "\u202e" not in text


def test_the_text_tells_state_progress_best_failure_and_notices() -> None:
    text = render_text(MID, samples.NOW_S)
    for part in (
        "width and rate (r-20260115-7f3a) · running",
        "24 of 40 trials · 3 pruned · 1 failed",
        "5 min 10 s · 5 trials/min · about 2 min 51 s left",
        "Best val_acc 0.8859 at trial 23: lr=0.0002836, width=64, activation=relu",
        "Trial 7 failed: ValueError",
        "★ 23  complete   0.8859",
        "• 1 attempt evicted and tried again",
    ):
        assert part in text


@pytest.mark.parametrize("kind", get_args(FailureKind))
def test_a_failed_run_tells_its_cause_first_and_in_25_lines(kind: FailureKind) -> None:
    deep = "".join(f"  In [1], line {n}, in f\n    f({n})\n" for n in range(40))
    text = f"Traceback (most recent call last):\n{deep}Cause: it broke\n"
    failure = Failure(kind, "Cause", "it broke " + "at length " * 200, text, line=4)
    snapshot = replace(
        MID, state="failed", finished_at_s=samples.NOW_S, failure=failure, failed_trial=7, rows=()
    )
    lines = render_text(snapshot, samples.NOW_S, 120).splitlines()
    begin = next(n for n, line in enumerate(lines) if "it broke" in line)
    assert lines[begin].startswith("Trial 7 failed: Cause: it broke")
    assert begin <= 5  # below what the run is, how far, how long, and its best
    last = next(n for n, line in enumerate(lines) if line == "  Cause: it broke")
    assert 20 <= last - begin < 25


def test_plain_dask_work_of_a_fit_has_its_tasks_done_of_all() -> None:
    work = replace(MID.rows[0], params={"dask": "tasks"}, step=1700, metrics={"tasks": 40_000.0})
    snapshot = replace(
        MID, verb="fit", can=load_verb("fit").can, nouns=load_verb("fit").nouns, rows=(work,)
    )
    assert "1,700 / 40,000" in render_text(snapshot, samples.NOW_S)
    assert "1,700 / 40,000" in render_html(snapshot, now_s=samples.NOW_S, live=False)
    other = replace(
        snapshot, verb="search", can=load_verb("search").can, nouns=load_verb("search").nouns
    )  # whose metric may have any name
    assert "/ 40,000" not in render_html(other, now_s=samples.NOW_S, live=False)
    assert "/ 40,000" not in render_text(other, samples.NOW_S)


def test_the_traceback_appears_only_when_it_ended_the_run() -> None:
    failed = replace(MID, state="failed", failure=samples.VALUE_ERROR, failed_trial=7)
    assert 'File "In [12]", line 9' in render_text(failed, samples.NOW_S)
    assert "In [12]" not in render_text(MID, samples.NOW_S)


def test_one_line_keeps_the_name_and_the_count_when_it_gets_narrow() -> None:
    wide = render_line(MID, samples.NOW_S, 120)
    assert wide == (
        "width and rate running · ███████▒░░░░ 24/40 · best 0.8859 · 1 failed · 2 min 51 s left"
    )
    assert render_line(MID, samples.NOW_S, 40) == "width and rate running · 24/40"


def test_ascii_marks_stand_in_for_what_the_terminal_lacks() -> None:
    text = render_text(MID, samples.NOW_S, ascii_only=True)
    assert text.isascii()
    assert "##################>>.........." in text
    assert "?" not in text


@given(st.integers(0, 40), st.integers(0, 40), st.integers(1, 60))
def test_the_bar_is_full_only_when_everything_has_finished(
    done: int, more: int, width: int
) -> None:
    whole = max(1, done + more)
    drawn = bar(done / whole, more / whole, width)
    assert len(drawn) == width
    assert (drawn == "█" * width) == (done == whole)


@given(st.text(max_size=60), st.integers(0, 60))
def test_cut_text_fits_and_short_text_stays(text: str, width: int) -> None:
    short = cut(text, width)
    assert cell_width(short) <= width
    assert (short == text) or cell_width(text) > width


def test_wide_characters_take_two_cells() -> None:
    assert cell_width("日本") == 4
    assert cell_width("e\u0301") == 1
    assert cut("日本語", 5) == "日本…"


def test_ascii_keeps_every_line_as_long_as_it_was() -> None:
    assert to_ascii("a · b … ★") == "a | b ~ *"


@pytest.mark.parametrize("n_trials", [0, 1])
def test_a_run_of_no_or_one_trial_is_drawn(n_trials: int) -> None:
    counts = Counts(complete=n_trials)
    empty = replace(MID, n_trials=n_trials, counts=counts, rows=(), best=None, notices=())
    unit = "trial" if n_trials == 1 else "trials"
    assert f"{n_trials} of {n_trials} {unit}" in render_text(empty, samples.NOW_S)
