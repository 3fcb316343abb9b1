"""Which container's log says why a pod fails."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_ddl.backends.kubernetes.pod_status import telling

ENDED = {"terminated": {"exitCode": 1}}
RUNS: dict[str, Any] = {"running": {}}


@pytest.mark.parametrize(
    ("state", "last", "found"),
    [
        (RUNS, {}, None),
        (ENDED, {}, ("controller", False)),
        (RUNS, ENDED, ("controller", True)),
        ({"waiting": {"reason": "CrashLoopBackOff"}}, ENDED, ("controller", True)),
        # Twice, and not begun again yet: the log of the first life is gone.
        (ENDED, ENDED, ("controller", False)),
    ],
)
def test_the_newest_end_of_a_container_is_told(
    state: dict[str, Any], last: dict[str, Any], found: tuple[str, bool] | None
) -> None:
    statuses = [
        {"name": "scheduler", "state": RUNS, "lastState": {}},
        {"name": "controller", "state": state, "lastState": last},
    ]
    assert telling(statuses, is_silent=False) == found


def test_a_silent_pod_is_told_by_its_first_container() -> None:
    statuses = [{"name": "worker", "state": RUNS}]
    assert telling(statuses, is_silent=True) == ("worker", False)
