from __future__ import annotations

import re
from urllib.parse import unquote

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tests.unit.views.view_samples as samples
from jupyter_ddl.protocol.events import Failure, HangVerdict
from jupyter_ddl.protocol.snapshot import (
    BestTrial,
    Counts,
    RankRow,
    RestartRow,
    RunSnapshot,
    TrialRow,
)
from jupyter_ddl.protocol.verb import load_verb
from jupyter_ddl.views import render_html
from jupyter_ddl.views.html import MAX_HTML_BYTES
from tests.unit.views.view_payloads import PAYLOADS, SAFE_ATTRIBUTES, SAFE_TAGS, Structure

replace = msgspec.structs.replace
MID = samples.search()
DONE = replace(
    samples.search(40, 40, running=frozenset()), state="complete", finished_at_s=samples.NOW_S
)
FAILED = replace(
    MID,
    state="failed",
    finished_at_s=samples.NOW_S,
    failure=samples.VALUE_ERROR,
    failed_trial=7,
    reason="Trial 7 failed 3 times.",
)
BIG = samples.search(
    10_000, 8_000, running=frozenset(range(7_990, 8_000)), pruned=frozenset(range(9, 6_000, 3))
)
ALL = {
    "mid": MID,
    "done": DONE,
    "failed": FAILED,
    "big": BIG,
    "map": samples.mapped(),
    "paused": replace(MID, paused="The disk is full."),
    "stopping": replace(MID, stopping=True),
    "group": samples.group(),
}


def drawn(snapshot: RunSnapshot, *, live: bool = False) -> str:
    return render_html(snapshot, now_s=samples.NOW_S, live=live)


def text_of(fragment: str) -> str:
    return " ".join("".join(Structure(fragment).text).split())


@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize("name", ALL)
def test_a_drawing_has_only_elements_and_attributes_of_the_allowed_set(
    name: str, live: bool
) -> None:
    structure = Structure(drawn(ALL[name], live=live))
    assert structure.tags <= SAFE_TAGS
    assert structure.attributes <= SAFE_ATTRIBUTES
    assert structure.depth == 0


@pytest.mark.parametrize("name", ALL)
def test_a_drawing_asks_the_network_for_nothing(name: str) -> None:
    for _, attrs in Structure(drawn(ALL[name])).elements:
        for attribute, value in attrs:
            if attribute == "src":
                assert value is not None
                assert value.startswith("data:image/svg+xml,")
                assert "<script" not in unquote(value)
            if attribute == "style":
                assert value is not None
                assert "url(" not in value


def test_the_final_curve_is_an_image_because_untrusted_notebooks_lose_svg() -> None:
    assert "svg" not in Structure(drawn(DONE, live=False)).tags
    assert "img" in Structure(drawn(DONE, live=False)).tags


def test_the_live_curve_is_inline_and_has_no_text_that_a_sanitizer_could_leave_behind() -> None:
    fragment = drawn(MID, live=True)
    svg = re.search(r"<svg.*?</svg>", fragment, re.DOTALL)
    assert svg is not None
    assert Structure(svg.group()).text == []


def test_progress_is_told_in_words_and_to_screen_readers() -> None:
    fragment = drawn(MID)
    assert "24 of 40 trials20 complete3 pruned1 failed2 running" in text_of(fragment)
    assert 'aria-valuenow="24"' in fragment
    assert 'aria-label="24 of 40 trials finished"' in fragment


def test_the_segments_of_the_bar_never_exceed_it() -> None:
    crowded = replace(MID, n_trials=3, counts=Counts(complete=5, failed=4, running=3))
    widths = [float(w) for w in re.findall(r"width:([\d.]+)%;min-width", drawn(crowded))]
    assert sum(widths) == pytest.approx(100, abs=0.01)


def test_the_table_has_headings_with_a_scope_and_the_best_trial_first() -> None:
    fragment = drawn(MID)
    heads = re.findall(r'<th scope="row".*?</th>', fragment)
    assert 'scope="col"' in fragment
    assert "★" in heads[0]
    assert MID.best is not None
    assert text_of(heads[0]).endswith(str(MID.best.number))
    assert sum("★" in head for head in heads) == 1


def test_a_failed_run_shows_its_first_cause_above_the_result_with_the_traceback_folded() -> None:
    fragment = drawn(FAILED)
    assert fragment.index("Trial 7 failed") < fragment.index("Best, trial")
    assert "cell line 9" in text_of(fragment)
    assert re.search(r"<details [^>]*><summary", fragment)
    assert "Trial 7 failed 3 times." in fragment


def test_more_failures_than_the_first_are_counted() -> None:
    many = replace(MID, counts=replace(MID.counts, failed=5))
    assert "4 more trials failed" in text_of(drawn(many))


def test_a_pause_is_an_alert_and_disappears_when_the_run_has_ended() -> None:
    assert 'role="alert"' in drawn(ALL["paused"])
    assert "The disk is full." in drawn(ALL["paused"])
    assert "The disk is full." not in drawn(replace(DONE, paused="The disk is full."))


def test_only_a_live_view_says_how_to_stop() -> None:
    assert "Interrupt the kernel" in drawn(MID, live=True)
    assert "interrupt again to stop now" in drawn(ALL["stopping"], live=True)
    assert "nterrupt" not in drawn(MID, live=False)
    assert "nterrupt" not in drawn(DONE, live=True)


def test_a_static_view_of_a_run_that_goes_on_says_how_to_follow_it() -> None:
    assert "%runs attach r-20260115-7f3a" in text_of(drawn(MID, live=False))


def test_a_map_shows_items_and_no_curve() -> None:
    fragment = drawn(samples.mapped())
    assert "352 of 500 items" in text_of(fragment)
    assert "2.7 items/s" in fragment
    assert "Item 344 failed" in fragment
    assert not {"svg", "img"} & Structure(fragment).tags


def test_a_value_far_off_does_not_flatten_the_curve() -> None:
    curve = (*((x, 0.5 + x / 100) for x in range(20)), (20, 1e6))
    best = BestTrial(number=0, params={}, value=0.5)
    diverged = replace(MID, mode="min", curve=curve, best_curve=(), best=best)
    assert "▲ 1 above the axis" in text_of(drawn(diverged))


def test_long_names_are_cut_and_control_characters_dropped() -> None:
    name = "a\x1b[31mb\u202ec\x00d" + "x" * 5000
    text = text_of(drawn(replace(MID, name=name)))
    assert "abcdxxx" in text
    assert "x" * 101 not in text
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)


def _poisoned(payload: str) -> RunSnapshot:
    """``payload`` in every string field of a snapshot."""
    failure = Failure(
        kind="exception", type_name=payload, message=payload, traceback=payload, line=3
    )
    params = {payload: payload, f"{payload}2": 0.5}
    rows = tuple(
        TrialRow(
            number=number,
            state="failed" if number == 1 else "complete",
            params=params,
            value=0.1 * number,
            step=1,
            metrics={payload: 0.5, f"{payload}3": 0.7},
            attempts=2,
            worker=payload,
            failure=failure if number == 1 else None,
        )
        for number in range(3)
    )
    return RunSnapshot(
        seq=1,
        run_id=payload,
        name=payload,
        verb="search",
        can=load_verb("search").can,
        nouns=load_verb("search").nouns,
        state="running",
        cluster=payload,
        created_at_s=0.0,
        n_trials=5,
        counts=Counts(complete=2, failed=1),
        metric=payload,
        sampler=payload,
        pruner=payload,
        best=BestTrial(number=2, params=params, value=0.2),
        rows=rows,
        curve=((0, 0.0), (2, 0.2)),
        best_curve=((1, 0.0), (2, 0.2)),
        notices=(payload, payload),
        paused=payload,
        reason=payload,
    )


def _poisoned_group(payload: str) -> RunSnapshot:
    """The same for a rank group."""
    row = RankRow(
        rank=0,
        host=payload,
        worker=payload,
        device=payload,
        pid=1,
        state="running",
        step=3,
        metrics={payload: 0.5},
    )
    return replace(
        _poisoned(payload),
        verb="ddp",
        can=load_verb("ddp").can,
        nouns=load_verb("ddp").nouns,
        ranks=(row, replace(row, rank=1, state="failed")),
        world_size=90,
        round=2,
        max_rounds=4,
        restarts=(RestartRow(1, 1, payload, 7, is_over=True), RestartRow(2, None, payload)),
        series={payload: ((0, 1.0), (1, 2.0)), f"{payload}2": ((0, 1.0), (9, float("nan")))},
        metrics=(payload, f"{payload}2"),
        hang=HangVerdict(0, 1, 1, 0.0, payload, 3, stacks_file=payload),
        failure=Failure(kind="crash", type_name=payload, message=payload, rank=1),
    )


def test_no_payload_in_any_field_adds_an_element_or_an_attribute() -> None:
    assert len(PAYLOADS) >= 300
    for live in (True, False):
        harmless = Structure(drawn(_poisoned("harmless"), live=live)).elements
        for payload in PAYLOADS:
            assert Structure(drawn(_poisoned(payload), live=live)).elements == harmless, payload


def test_no_payload_in_a_rank_group_adds_an_element_or_an_attribute() -> None:
    for live in (True, False):
        harmless = Structure(drawn(_poisoned_group("harmless"), live=live)).elements
        for payload in PAYLOADS:
            hostile = Structure(drawn(_poisoned_group(payload), live=live)).elements
            assert hostile == harmless, payload


def test_no_payload_in_the_first_cause_adds_an_element() -> None:
    def ended(payload: str) -> RunSnapshot:
        failure = Failure(kind="crash", type_name=payload, message=payload, traceback=payload)
        return replace(_poisoned(payload), state="failed", failure=failure, failed_trial=1)

    harmless = Structure(drawn(ended("harmless"))).elements
    for payload in PAYLOADS:
        assert Structure(drawn(ended(payload))).elements == harmless, payload


_NASTY = st.sampled_from(['"', "'", "<", "&", "\U0001f600", "\x00", "a b", "\n", "界"])
_LONG = st.builds(lambda unit, n: unit * n, _NASTY, st.integers(0, 20_000))
_VALUES = st.floats(allow_nan=True, allow_infinity=True)


@st.composite
def crowded_snapshots(draw: st.DrawFn) -> RunSnapshot:
    text = draw(_LONG)
    n_params = draw(st.integers(0, 60))
    params = {f"{text[:300]}{k}": text for k in range(n_params)}
    failure = Failure(kind="exception", type_name=text, message=text, traceback=text * 3)
    n_rows = draw(st.integers(0, 60))
    values = draw(st.lists(_VALUES, min_size=1, max_size=4))
    rows = tuple(
        TrialRow(
            number=number,
            state=draw(st.sampled_from(["running", "complete", "failed"])),
            params=params,
            value=values[number % len(values)],
            metrics={f"{text[:200]}{k}": values[0] for k in range(10)},
            worker=text,
            failure=failure,
        )
        for number in range(n_rows)
    )
    curve = tuple((k, values[k % len(values)]) for k in range(draw(st.integers(0, 400))))
    return replace(
        _poisoned(text),
        rows=rows,
        n_trials=draw(st.integers(0, 10**12)),
        counts=Counts(*draw(st.tuples(*[st.integers(0, 10**9)] * 6))),
        best=BestTrial(number=1, params=params, value=values[0]),
        curve=curve,
        best_curve=curve[:100],
        notices=(text,) * 5,
        failure=draw(st.sampled_from([None, failure])),
        ends_at_s=draw(_VALUES),
        trials_per_s=draw(_VALUES),
    )


@pytest.mark.parametrize("unit", ['"', "\U0001f600", "w"])
@pytest.mark.parametrize("live", [True, False])
def test_the_fullest_rank_group_stays_below_the_limit(unit: str, live: bool) -> None:
    text = unit * 20_000
    full = _poisoned_group(text)
    points = tuple((step * 10**9, 1.0 / (step + 1)) for step in range(400))
    full = replace(
        full,
        ranks=tuple(
            replace(full.ranks[0], rank=rank, metrics={f"{text}{k}": 1e-300 for k in range(20)})
            for rank in range(64)
        ),
        restarts=full.restarts * 4,
        series={f"{text}{k}": points for k in range(24)},
        metrics=tuple(f"{text}{k}" for k in range(24)),
    )
    fragment = drawn(full, live=live)
    assert len(fragment.encode()) <= MAX_HTML_BYTES
    assert Structure(fragment).depth == 0


@settings(max_examples=60, deadline=None)
@given(snapshot=crowded_snapshots(), live=st.booleans())
def test_no_snapshot_draws_more_than_the_limit(snapshot: RunSnapshot, live: bool) -> None:
    fragment = drawn(snapshot, live=live)
    assert len(fragment.encode()) <= MAX_HTML_BYTES
    assert Structure(fragment).depth == 0


@pytest.mark.parametrize("unit", ['"', "\U0001f600", "&", "w"])
@pytest.mark.parametrize("live", [True, False])
def test_the_fullest_snapshot_stays_below_the_limit(unit: str, live: bool) -> None:
    text = unit * 30_000
    params = {f"{unit * 200}{k}": text for k in range(60)}
    failure = Failure(kind="exception", type_name=text, message=text, traceback=text)
    row = TrialRow(
        number=0, state="failed", params=params, metrics=dict.fromkeys(params, 0.1), failure=failure
    )
    full = replace(
        _poisoned(text),
        rows=tuple(replace(row, number=number) for number in range(60)),
        best=BestTrial(number=10**12, params=params, value=1e-300),
        curve=tuple((k * 10**9, 1.0 / (k + 1) + 1e5) for k in range(400)),
        best_curve=tuple((k * 10**9, float(k)) for k in range(400)),
        notices=(text,) * 5,
        failure=failure,
    )
    fragment = drawn(full, live=live)
    assert len(fragment.encode()) <= MAX_HTML_BYTES
    assert "…" in fragment
