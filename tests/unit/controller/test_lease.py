"""When a cluster is to end by itself."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jupyter_ddl.controller.service import Lease


def lease() -> Lease:
    return Lease(started_s=100.0, idle_timeout_s=60.0, max_age_s=1000.0, last_active_s=100.0)


def test_an_idle_cluster_ends_after_its_timeout() -> None:
    assert lease().expired(159.0, n_active_runs=0) is None
    assert lease().expired(160.0, n_active_runs=0) == "it has been idle for 60 s"


def test_a_request_or_a_run_keeps_it_alive() -> None:
    touched = lease()
    touched.touch(150.0)
    touched.touch(120.0)  # clocks of requests may come late, never early
    assert touched.expired(200.0, 0) is None
    assert touched.idle_left_s(200.0, 0) == 10.0
    assert lease().expired(500.0, n_active_runs=1) is None
    assert lease().idle_left_s(500.0, 1) is None


def test_its_time_starts_when_the_cluster_is_ready() -> None:
    found = lease()
    found.begin(500.0)
    assert found.expired(550.0, 0) is None
    assert found.age_left_s(600.0) == 900.0


def test_nothing_outlives_the_maximum_age() -> None:
    assert lease().expired(1100.0, n_active_runs=1) == "its maximum age of 1000 s is reached"
    assert lease().age_left_s(600.0) == 500.0


@given(st.floats(100, 2000), st.floats(100, 2000), st.integers(0, 2))
def test_time_left_and_the_verdict_agree(touched_s: float, now_s: float, n_runs: int) -> None:
    found = lease()
    found.touch(min(touched_s, now_s))
    idle_s = found.idle_left_s(now_s, n_runs)
    left = [found.age_left_s(now_s), *([] if idle_s is None else [idle_s])]
    assert (found.expired(now_s, n_runs) is None) == (min(left) > 0)
