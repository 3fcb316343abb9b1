"""Room that stopped clusters still hold, with a clock of the test's own."""

from __future__ import annotations

from typing import Any

from jupyter_ddl.backends.kubernetes.pod_status import ComingRoom

STAYS: dict[str, Any] = {"metadata": {"name": "stays"}}
ENDS: dict[str, Any] = {"metadata": {"name": "ends", "deletionTimestamp": "2026-11-22T10:00:00Z"}}


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def test_only_pods_that_were_deleted_set_room_free() -> None:
    room = ComingRoom(Clock())
    assert room.n_ending([STAYS, STAYS]) == 0
    assert room.n_ending([STAYS, ENDS, ENDS]) == 2


def test_lack_of_room_is_believed_after_as_long_as_the_pods_took_to_end() -> None:
    clock = Clock()
    room = ComingRoom(clock)
    room.n_ending([ENDS])
    clock.now_s += 30
    room.n_ending([ENDS])
    clock.now_s += 1
    assert room.n_ending([STAYS]) == 0
    assert room.none_before_s == 1060.0


def test_pods_that_never_end_give_no_hope() -> None:
    """Their node is lost, and Kubernetes keeps them."""
    clock = Clock()
    room = ComingRoom(clock)
    assert room.n_ending([ENDS]) == 1
    clock.now_s += 100
    assert room.n_ending([ENDS]) == 0
    clock.now_s += 1
    assert room.n_ending([]) == 0
    assert room.n_ending([ENDS]) == 1
