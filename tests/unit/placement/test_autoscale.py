"""The size of an adaptive cluster."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_ddl.placement.slots import wanted_workers


@pytest.mark.parametrize(
    ("demand", "current", "may_shrink", "expected"),
    [
        (0, 0, False, 0),
        (5, 0, False, 3),  # bounded by the maximum
        (2, 1, False, 2),  # grows at once
        (1, 3, False, 3),  # keeps its surplus for a while
        (1, 3, True, 1),
        (0, 3, True, 0),
        (0, 5, False, 3),  # above a new maximum: at once
    ],
)
def test_workers_follow_the_demand(
    demand: int, current: int, may_shrink: bool, expected: int
) -> None:
    assert wanted_workers(demand, current, 0, 3, may_shrink=may_shrink) == expected


@pytest.mark.parametrize(("demand", "expected"), [(0, 0), (1, 1), (4, 1), (5, 2), (99, 3)])
def test_workers_of_several_slots_are_filled_before_another_starts(
    demand: int, expected: int
) -> None:
    found = wanted_workers(demand, 2, 0, 3, may_shrink=True, slots_per_worker=4)
    assert found == expected


@given(st.integers(0, 99), st.integers(0, 99), st.integers(0, 9), st.integers(0, 9), st.booleans())
def test_the_bounds_hold(demand: int, current: int, low: int, more: int, may_shrink: bool) -> None:
    wanted = wanted_workers(demand, current, low, low + more, may_shrink=may_shrink)
    assert low <= wanted <= low + more
