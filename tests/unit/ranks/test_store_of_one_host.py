"""The ranks of one host meet in a file that is rank 0's: what one does that comes late for it."""

from __future__ import annotations

import queue
import subprocess
import sys

import pytest

from jupyter_ddl.errors import LaunchError
from jupyter_ddl.protocol.assignment import TrialAssignment
from jupyter_ddl.protocol.group import JoinGroup, RankPlace
from jupyter_ddl.ranks.group import RankGroup

_GONE = "/proc/1/fd/987654"


def second_rank() -> RankGroup:
    place = RankPlace("g1", 1, 2, 1, 2, n_hosts=1, hosts=("127.0.0.1",))
    joins: queue.SimpleQueue[JoinGroup] = queue.SimpleQueue()
    joins.put(JoinGroup("r1", 0, 1, ("127.0.0.1:1", "127.0.0.1:2"), _GONE))
    trial = TrialAssignment(0, 1, {}, 7)
    return RankGroup(place, trial, lambda ready: None, joins, lambda text: None)


def test_without_torch_a_rank_does_without_the_file_of_a_first_one_that_is_through() -> None:
    # In a process of its own: entering a group changes what modules do.
    code = (
        "from tests.unit.ranks.test_store_of_one_host import second_rank\n"
        "group = second_rank()\n"
        "group.enter(with_torch=False)\n"
        "group.leave()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_with_torch_it_is_needed() -> None:
    with pytest.raises(LaunchError, match=f"store of this rank group at {_GONE} failed"):
        second_rank().enter(with_torch=True)
