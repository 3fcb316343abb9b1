from __future__ import annotations

import re
from urllib.parse import unquote

import msgspec

import tests.unit.views.view_samples as samples
from jupyter_ddl.protocol.events import Failure
from jupyter_ddl.protocol.snapshot import RestartRow, RunSnapshot, StepParts
from jupyter_ddl.views import render_html, render_line, render_text
from tests.unit.views.view_payloads import PAYLOADS, Structure

replace = msgspec.structs.replace
GROUP = samples.group()
DONE = replace(GROUP, state="complete", finished_at_s=samples.NOW_S)
FAILED = replace(
    GROUP,
    state="failed",
    finished_at_s=samples.NOW_S,
    failure=samples.RANK_FAILURE,
    failed_trial=0,
    reason="gave up after 4 rounds",
)


def html(snapshot: RunSnapshot, *, live: bool = True) -> str:
    return render_html(snapshot, now_s=samples.NOW_S, live=live)


def text_of(fragment: str) -> str:
    return " ".join(" ".join(Structure(fragment).text).split())


def text(snapshot: RunSnapshot) -> str:
    return render_text(snapshot, samples.NOW_S, 100)


def test_a_group_is_drawn_by_its_ranks_and_not_as_one_trial() -> None:
    for drawn in (text_of(html(GROUP)), text(GROUP)):
        assert "4 ranks" in drawn
        assert "step 1,790" in drawn
        assert "round 3 of 4" in drawn
        assert "checkpoint at step 1,700" in drawn
        assert "trial" not in drawn


def test_each_rank_has_a_lane_from_host_to_device_with_what_it_said_last() -> None:
    lanes = re.findall(r"<tr.*?</tr>", html(GROUP), re.DOTALL)[1:]
    assert len(lanes) == 4
    assert "3 running 1,789 loss 0.167, acc 0.9876 10.0.0.2 → w3 → cuda:1 4714" in text_of(lanes[3])
    assert "loss 0.167, acc 0.9876  10.0.0.2 → w3 → cuda:1" in text(GROUP)


def test_what_steps_are_made_of_stands_with_each_rank_and_the_verdict_below() -> None:
    parts = StepParts(40, 0.05, 0.0185, 0.025, waiting_s=0.004, exchange_s=0.0025)
    alone = StepParts(40, 0.05, 0.0, 0.05)
    first = replace(GROUP.ranks[0], parts=parts, bytes_per_step=512.0, peak_memory_bytes=300 << 20)
    rows = (first, replace(GROUP.ranks[1], parts=alone))
    told = replace(
        GROUP, ranks=rows, step_verdict="37 % of a step waits for data <b>", bytes_sent=1536
    )
    for drawn in (render_text(told, samples.NOW_S, 200), text_of(html(told))):
        assert "50 ms: 37 % data, 8 % waiting, 5 % exchange, 50 % compute" in drawn
        assert "sent, peak memory" in drawn
        assert "512 B a step, 300 MiB" in drawn
        assert "50 ms: 0 % data, 100 % compute" in drawn
        assert "Steps: 37 % of a step waits for data <b>; 1.5 KiB sent" in drawn
    assert "one step" not in text(GROUP)
    assert "peak memory" not in text(GROUP)


def test_a_restart_tells_its_cause_and_where_training_went_on() -> None:
    for drawn in (text_of(html(GROUP)), text(GROUP)):
        assert "ound 1: rank 1 died by SIGKILL; round 2 of 4 resumed from step 120" in drawn
    anew = replace(GROUP, restarts=(RestartRow(1, None, "lost its worker", None, is_over=True),))
    assert "round 1: the group lost its worker; round 2 of 4 started over" in text(anew)
    waits = replace(GROUP, restarts=(RestartRow(3, 0, "died by SIGKILL"),))
    assert "round 3: rank 0 died by SIGKILL; the next round is being prepared" in text(waits)
    over = replace(waits, state="failed", finished_at_s=samples.NOW_S)
    assert "round 3: rank 0 died by SIGKILL\n" in text(over) + "\n"


def test_a_restart_is_an_upright_line_in_each_curve() -> None:
    restarted, whole = html(GROUP), html(replace(GROUP, restarts=()))
    n_plots = whole.count("of rank 0 per step")
    assert restarted.count("went on from step 120, 980") == n_plots > 0
    (pictures, others) = (unquote(drawn) for drawn in (restarted, whole))
    rules = re.findall(r"<path d='((?:M[\d.,]+V[\d.]+)+)'[^>]*stroke-opacity", pictures)
    assert [len(re.findall("M", rule)) for rule in rules] == [2] * n_plots
    assert "V" not in "".join(re.findall(r"<path d='([^']*)'[^>]*stroke-opacity='.5'", others))


def test_a_notice_that_says_the_same_as_a_restart_is_left_out() -> None:
    notice = "restarted from the checkpoint at step 120"
    assert notice not in text(replace(GROUP, notices=(notice,)))
    smaller = "restarted with 3 ranks from the checkpoint at step 120"
    assert smaller in text(replace(GROUP, notices=(smaller,)))


def test_the_hang_card_stands_above_the_curves_and_goes_when_the_work_is_done() -> None:
    drawn = html(GROUP)
    assert drawn.index("Hang: rank 3") < drawn.index("train_loss")
    assert "cell line 14" in text_of(drawn)
    assert "stacks/round-2.txt" in drawn
    assert text_of(drawn).count("made no step for 62 s") == 1
    assert "Hang:" not in html(DONE)
    assert "made no step for 62 s" in text_of(html(DONE))


def test_a_run_that_failed_by_a_hang_tells_it_once_with_its_stacks() -> None:
    hang = GROUP.hang
    assert hang is not None
    cause = Failure("hang", "Hang", hang.text, line=hang.line, rank=hang.rank)
    hung = replace(FAILED, failure=cause, notices=(hang.text,))
    for drawn in (text_of(html(hung)), text(hung)):
        assert drawn.count("made no step for 62 s") == 1
        assert f"Stacks of all ranks: {hang.stacks_file} in the run's directory" in drawn
    assert "Stacks of all ranks" not in text(FAILED)


def test_the_loss_is_drawn_first_and_a_metric_with_one_point_is_not() -> None:
    series = {**GROUP.series, "once": ((1, 1.0),)}
    drawn = html(replace(GROUP, series=series, metrics=("train_loss", "acc", "once"), n_metrics=9))
    assert drawn.index("train_loss of rank 0") < drawn.index("acc of rank 0")
    assert drawn.count("<svg") == 2
    assert "once of rank 0" not in drawn
    assert "7 more metrics without a curve here" in drawn


def test_the_first_cause_names_its_rank_once_and_folds_the_others_into_a_count() -> None:
    drawn = text_of(html(FAILED))
    assert "Rank 1: ZeroDivisionError cell line 7" in drawn
    assert "division by zero (1 more rank failed)" in drawn
    assert "rank 1: division" not in drawn
    assert "Rank 1: ZeroDivisionError: division by zero (1 more rank failed)" in text(FAILED)
    assert "Trial 0" not in drawn


def test_ranks_that_do_not_fit_are_counted() -> None:
    many = samples.group(500, 60)
    assert re.search(r"Ranks and their places · 4\d\d more not shown", text_of(html(many)))
    assert "… 488 more ranks" in text(many)


def test_ranks_that_are_to_join_are_not_there_yet() -> None:
    some = replace(GROUP, ranks=GROUP.ranks[:2], world_size=4, n_to_come=2)
    assert "2 of 4 ranks" in text_of(html(some))
    assert "not shown" not in text_of(html(some))
    assert "2 of 4 ranks" in text(some)
    assert "more ranks" not in text(some)


def test_a_group_that_waits_for_its_slots_says_so() -> None:
    empty = replace(
        GROUP, ranks=(), world_size=0, round=0, series={}, restarts=(), hang=None, notices=()
    )
    assert "no rank yet" in text_of(html(empty))
    assert "<table" not in html(empty)
    assert render_line(empty, samples.NOW_S, 80).startswith("digits, four ranks running")


def test_one_line_shows_step_and_metrics_of_the_group() -> None:
    line = render_line(GROUP, samples.NOW_S, 100)
    assert "4 ranks · step 1,790 · loss 0.161, acc 0.9876 · round 3 of 4" in line
    assert len(line) <= 100
    assert len(render_line(GROUP, samples.NOW_S, 40)) <= 40


def test_text_from_a_rank_cannot_steer_the_terminal() -> None:
    for payload in (*PAYLOADS, "\r\x1b[2J\x9b31m\x07 \u202e"):
        row = replace(
            GROUP.ranks[0], host=payload, worker=payload, device=payload, metrics={payload: 1.0}
        )
        restart = RestartRow(1, 1, payload, 3, is_over=True)
        hostile = replace(
            GROUP, ranks=(row,), restarts=(restart,), hang=replace(GROUP.hang, text=payload)
        )
        shown = text(hostile) + render_line(hostile, samples.NOW_S)
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", shown), payload
