from __future__ import annotations

import doctest
import json
import math
import random
import struct
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_ddl import formats
from jupyter_ddl.plotting.axes import count_axis, value_axis
from jupyter_ddl.protocol.space import Choice, OneOf, RandInt, Uniform
from jupyter_ddl.views import drawing
from jupyter_ddl.views.bundle import LIVE_DIR
from jupyter_ddl.views.drawing import esc, plain, plain_lines
from tests.unit.views.node_tools import node

finite = st.floats(allow_nan=False, allow_infinity=False)


# What only browsers show, and therefore only live/format.js writes.
_OF_BROWSERS = {"clock"}
_TABLE: dict[str, list[list[Any]]] = json.loads(
    Path(__file__).with_name("formats.json").read_text()
)
FORMATS = {
    name.removeprefix("format_"): getattr(module, name)
    for module in (formats, drawing)
    for name in module.__all__
    if name.startswith("format_")
}
_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def in_browser(calls: Mapping[str, Sequence[Sequence[Any]]]) -> dict[str, list[Any]]:
    """What live/format.js makes of the arguments of each function's calls."""
    driver = Path(__file__).with_name("live_format.mjs")
    done = subprocess.run(
        [node(), str(driver), str(LIVE_DIR / "format.js")],
        input=json.dumps(calls, allow_nan=False),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    texts: dict[str, list[Any]] = json.loads(done.stdout)
    return texts


def here(name: str, arguments: Sequence[Any]) -> str | list[str]:
    values = [_NOT_FINITE.get(each, each) if isinstance(each, str) else each for each in arguments]
    text: str | tuple[str, ...] = FORMATS[name](*values)
    return list(text) if isinstance(text, tuple) else text


@pytest.mark.parametrize("name", sorted(_TABLE.keys() - _OF_BROWSERS))
def test_a_view_writes_what_the_table_says(name: str) -> None:
    for *arguments, text in _TABLE[name]:
        assert here(name, arguments) == text, arguments


def test_the_live_view_writes_what_the_table_says() -> None:
    shown = in_browser({name: [row[:-1] for row in rows] for name, rows in _TABLE.items()})
    assert shown == {name: [row[-1] for row in rows] for name, rows in _TABLE.items()}


def test_the_table_has_every_formatter_of_numbers() -> None:
    assert _TABLE.keys() == (FORMATS.keys() - {"distribution"}) | _OF_BROWSERS


def test_views_and_live_view_write_any_number_alike() -> None:
    numbers = random_numbers(5000)
    calls: dict[str, list[list[Any]]] = {
        name: [[number] for number in numbers]
        for name in ("number", "score", "param", "duration", "age", "bytes", "percent")
    }
    calls["rate"] = [[number, "trials"] for number in numbers]
    calls["held"] = [[abs(number), "GPU"] for number in numbers if abs(number) < 1e300]
    calls["money"] = [[abs(number), "EUR"] for number in numbers]
    calls["ticks"] = [
        random_ticks(abs(number)) for number in numbers if 1e-290 < abs(number) < 1e290
    ]
    calls["count"] = [[int(number)] for number in numbers if abs(number) < 2**53]
    shown = in_browser(calls)
    for name, rows in calls.items():
        expected = [here(name, row) for row in rows]
        wrong = [
            each for each in zip(rows, expected, shown[name], strict=True) if each[1] != each[2]
        ]
        assert not wrong, (name, wrong[:5])


def random_numbers(n: int) -> list[float]:
    """Of every size, as doubles and whole; many exactly or nearly in the middle of two texts."""
    rng = random.Random(7)
    numbers: list[float] = []
    while len(numbers) < n:
        size = 10 ** rng.uniform(-14, 18)
        middle = rng.choice([1023.95, 1023.5, 9999.5, 9.95, 0.9995, 60, 3600, 86400, 1e7, 1e-4])
        number = rng.choice(
            [
                size,
                -size,
                round(size, 1),
                float(f"{size:.4g}") * (1 + 5e-5),
                rng.randrange(10**6) / 2 ** rng.randrange(8),
                float(f"{rng.randrange(10**4)}5e{rng.randrange(-12, 12)}"),
                math.nextafter(middle, rng.choice([-math.inf, math.inf])),
                middle * rng.uniform(0.999, 1.001),
                round(min(size, 1e15)),
                struct.unpack("d", rng.randbytes(8))[0],
            ]
        )
        if math.isfinite(number):
            numbers.append(number)
    return numbers


def random_ticks(number: float) -> list[Any]:
    """Neighbours on an axis with a round step, as plots have them."""
    rng = random.Random(number)
    step = rng.choice([1, 2, 2.5, 5]) * 10.0 ** math.floor(math.log10(number))
    first = rng.randrange(-(10 ** rng.randrange(1, 6)), 10 ** rng.randrange(1, 6))
    return [[(first + k) * step for k in range(5)], step]


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
    ("dist", "text"),
    [
        (Uniform(1e-4, 0.1, log=True), "loguniform(0.0001, 0.1)"),
        (Uniform(0.0, 1.0, step=0.25), "uniform(0, 1, step=0.25)"),
        (RandInt(1, 64, log=True), "randint(1, 64, log=True)"),
        (RandInt(10000, 20000, step=5000), "randint(10000, 20000, step=5000)"),
        (Choice(("relu", None, True)), "choice(relu, None, True)"),
        (
            RandInt(2, 9, when=((OneOf("model", ("svm", "knn")), OneOf("deep", (True,))),)),
            "randint(2, 9) if model = svm|knn, deep = True",
        ),
    ],
)
def test_a_distribution_reads_as_the_cell_declares_it(dist: object, text: str) -> None:
    assert drawing.format_distribution(dist) == text  # type: ignore[arg-type]


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
