"""How many workers a host gets, and which backends there are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_ddl.backends.base import MIN_WORKER_BYTES, check_size, n_local_workers
from jupyter_ddl.backends.local import LocalBackend
from jupyter_ddl.errors import ClusterError
from jupyter_ddl.protocol.cluster import ClusterSpec

GB = 1 << 30


@pytest.mark.parametrize(
    ("cpus", "memory_bytes", "cpus_per_worker", "expected"),
    [
        (1, 2 * GB, 1, 1),  # the smallest container
        (1, 512 << 20, 1, 1),
        (2, 8 * GB, 1, 2),
        (8, 4 * GB, 1, 4),  # memory is short
        (8, 64 * GB, 4, 2),
        (2, 8 * GB, 16, 1),
    ],
)
def test_workers_fit_the_container(
    cpus: int, memory_bytes: int, cpus_per_worker: int, expected: int
) -> None:
    assert n_local_workers(cpus, memory_bytes, cpus_per_worker) == expected


@given(st.integers(1, 256), st.integers(1, 1 << 42), st.integers(1, 64))
def test_there_is_a_worker_and_never_more_than_fit(
    cpus: int, memory_bytes: int, cpus_per_worker: int
) -> None:
    found = n_local_workers(cpus, memory_bytes, cpus_per_worker)
    assert found >= 1
    assert found == 1 or found * cpus_per_worker <= cpus
    assert found == 1 or found * MIN_WORKER_BYTES <= memory_bytes


def test_a_cluster_of_no_workers_is_one_that_was_asked_for() -> None:
    assert LocalBackend(ClusterSpec(n_workers=0)).n_wanted == 0
    assert LocalBackend(ClusterSpec(n_workers=3)).n_wanted == 3
    assert LocalBackend(ClusterSpec()).n_wanted >= 1


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (ClusterSpec(n_workers=10**9), "1,000,000,000 workers were asked for; expected 0 to 1,024"),
        (ClusterSpec(n_workers=-3), "-3 workers were asked for"),
        (ClusterSpec(cpus_per_worker=0), "--cpus 0: expected 1 to 1024"),
        (ClusterSpec(cpus_per_worker=10**23), "expected 1 to 1024"),
        (ClusterSpec(idle_timeout_s=0.5), "--idle-timeout is 0.5 s; expected 1s to 365d"),
        (ClusterSpec(max_age_s=float("nan")), "--max-age is nan s; expected 1s to 365d"),
        (ClusterSpec(max_age_s=1e9), "--max-age is 1e"),
        (
            ClusterSpec(memory_per_worker_bytes=4),
            "is 4 bytes; expected 64MB to 64TB .*did you mean 4GB",
        ),
        (ClusterSpec(memory_per_worker_bytes=4000), "is 4,000 bytes; .*did you mean 4000MB"),
        (
            ClusterSpec(memory_per_worker_bytes=10**6),
            "is 1,000,000 bytes; expected 64MB to 64TB .DDL",
        ),
        (ClusterSpec(memory_per_worker_bytes=-(2**30)), "is -1,073,741,824 bytes"),
        (ClusterSpec(memory_per_worker_bytes=10**30), "expected 64MB to 64TB .DDL"),
    ],
)
def test_sizes_that_are_none_are_refused_whatever_the_backend(
    wanted: ClusterSpec, expected: str
) -> None:
    with pytest.raises(ClusterError, match=expected):
        check_size(wanted)


@pytest.mark.parametrize("memory_bytes", [None, 64 * 10**6, 64 * 10**12])
def test_the_sizes_that_are_named_as_possible_are_taken(memory_bytes: int | None) -> None:
    check_size(ClusterSpec(n_workers=0, cpus_per_worker=1024, memory_per_worker_bytes=memory_bytes))
