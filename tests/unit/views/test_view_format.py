from __future__ import annotations

import doctest
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_ddl.spec.space import Choice, RandInt, Uniform
from jupyter_ddl.views import format as formats
from jupyter_ddl.views.axes import count_axis, value_axis
from jupyter_ddl.views.escape import esc, plain, plain_lines

finite = st.floats(allow_nan=False, allow_infinity=False)


def test_the_examples_in_the_docstrings_hold() -> None:
    results = doctest.testmod(formats)
    assert results.attempted >= 6
    assert results.failed == 0


@given(st.floats() | st.integers())
def test_every_number_has_a_short_form(value: float) -> None:
    assert 1 <= len(formats.format_number(value)) <= 12
    assert 1 <= len(formats.format_score(value)) <= 12


@given(st.floats(-1e300, 1e300))
def test_a_number_is_shown_to_four_digits(value: float) -> None:
    shown = float(formats.format_number(value).replace(",", ""))
    assert shown == pytest.approx(value, rel=5.1e-4, abs=1e-320)


@given(st.floats() | st.none())
def test_every_duration_has_a_short_form(seconds: float | None) -> None:
    text = formats.format_duration(seconds)
    assert text
    assert seconds is None or seconds > 1e12 or len(text) <= 20


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 ms"), (0.9996, "1.0 s"), (59.6, "1 min"), (3599.7, "1 h"), (90061, "1 d 01 h")],
)
def test_durations_round_into_the_next_unit(seconds: float, text: str) -> None:
    assert formats.format_duration(seconds) == text


@pytest.mark.parametrize(
    ("per_s", "text"),
    [(None, ""), (0, ""), (812.3, "812 trials/s"), (2.74, "2.7 trials/s"), (0.4, "24 trials/min"),
     (0.01, "36.0 trials/h"), (math.inf, "")],
)  # fmt: skip
def test_rates_are_told_in_a_unit_near_one(per_s: float | None, text: str) -> None:
    assert formats.format_rate(per_s, "trials") == text


@pytest.mark.parametrize(
    ("dist", "text"),
    [
        (Uniform(1e-4, 0.1, log=True), "loguniform(0.0001, 0.1)"),
        (Uniform(0.0, 1.0, step=0.25), "uniform(0, 1, step=0.25)"),
        (RandInt(1, 64, log=True), "randint(1, 64, log=True)"),
        (RandInt(10000, 20000, step=5000), "randint(10000, 20000, step=5000)"),
        (Choice(("relu", None, True)), "choice(relu, None, True)"),
    ],
)
def test_a_distribution_reads_as_the_cell_declares_it(dist: object, text: str) -> None:
    assert formats.format_distribution(dist) == text  # type: ignore[arg-type]


@given(finite, finite)
def test_value_ticks_cover_the_data_in_few_even_steps(a: float, b: float) -> None:
    low, high = min(a, b), max(a, b)
    axis = value_axis(low, high)
    assert 2 <= len(axis.ticks) <= 8
    assert len(set(axis.ticks)) == len(axis.ticks) == len(set(axis.labels))
    assert axis.place(low) <= axis.place(high)
    if max(abs(low), abs(high)) <= 1e299:
        slack = (axis.ticks[-1] - axis.ticks[0]) * 1e-6
        assert axis.ticks[0] - slack <= low <= high <= axis.ticks[-1] + slack


@given(st.integers(0, 10**9))
def test_count_ticks_are_whole_numbers_from_zero(last: int) -> None:
    axis = count_axis(last)
    assert axis.ticks[0] == 0
    assert axis.ticks[-1] >= max(1, last)
    assert 2 <= len(axis.ticks) <= 7
    assert all(tick == int(tick) for tick in axis.ticks)


@given(st.text(), st.integers(1, 300))
def test_cleaned_text_is_one_printable_line_within_its_limit(text: str, limit: int) -> None:
    cleaned = plain(text, limit)
    assert len(cleaned) <= limit
    assert all(c.isprintable() or c in "\u200c\u200d" for c in cleaned)
    assert plain(cleaned, limit) == cleaned


@given(st.text(alphabet=st.characters(codec="utf-8")), st.integers(1, 300))
def test_escaped_text_can_leave_neither_an_element_nor_an_attribute(text: str, limit: int) -> None:
    assert not set(esc(text, limit)) & set("<>\"'")
    esc(text, limit).encode()


def test_a_long_traceback_keeps_its_head_and_more_of_its_tail() -> None:
    cleaned = plain_lines("first\n" + "middle\n" * 5000 + "last", 300)
    assert cleaned.startswith("first\n")
    assert cleaned.endswith("last")
    assert "characters left out" in cleaned
    assert len(cleaned) < 360
