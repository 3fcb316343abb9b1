"""When a search is given up because its first trials fail alike."""

from __future__ import annotations

import pytest

from jupyter_ddl.protocol.events import Failure
from jupyter_ddl.studies import hopeless


def failure(type_name: str = "KeyError", line: int | None = 3, message: str = "x") -> Failure:
    return Failure(kind="exception", type_name=type_name, message=message, line=line)


def test_three_equal_failures_from_the_start_end_a_search_with_the_first() -> None:
    failures = [failure(message=f"key {n}") for n in range(3)]

    assert hopeless(0, failures[:2], max_parallel=1) is None
    assert hopeless(0, failures, max_parallel=1) is failures[0]


def test_more_trials_in_flight_need_more_failures() -> None:
    failures = [failure()] * 8

    assert hopeless(0, failures[:7], max_parallel=4) is None
    assert hopeless(0, failures, max_parallel=4) == failure()


def test_one_success_is_reason_to_go_on() -> None:
    assert hopeless(1, [failure()] * 9, max_parallel=1) is None


@pytest.mark.parametrize("other", [failure("ValueError"), failure(line=4), failure(line=None)])
def test_failures_of_different_causes_are_no_verdict(other: Failure) -> None:
    assert hopeless(0, [failure(), other, failure(), failure()], max_parallel=1) is None
