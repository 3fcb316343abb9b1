"""How many ranks a round has: all or none, fewer after a while, more when slots return."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_ddl.driving.admission import check_group_fits, round_notices
from jupyter_ddl.driving.places import RoundSizes
from jupyter_ddl.errors import PlacementError
from jupyter_ddl.ledger.reducer import fold
from jupyter_ddl.ledger.run_state import RunState
from jupyter_ddl.placement.gpus import Grant
from jupyter_ddl.placement.slots import SlotBook
from jupyter_ddl.protocol.assignment import TrialAssignment
from jupyter_ddl.protocol.events import (
    AttemptFinished,
    AttemptStarted,
    CheckpointSaved,
    Notice,
    RunSubmitted,
    TrialCreated,
)
from jupyter_ddl.protocol.group import RankPlace
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.verbs.ddp import Ddp


def spec_of(n_ranks: int, min_ranks: int | None = None, gpus: int = 0) -> RunSpec:
    verb = Ddp(n_ranks=n_ranks, min_ranks=min_ranks, gpus_per_rank=gpus)
    program = Program(source="", filename="In [1]")
    return RunSpec("ddp", verb, program, 1, "c", 0.0)


def book(**slots: int) -> SlotBook:
    found = SlotBook()
    found.set_workers(slots)
    found.join("ddp")
    return found


def test_a_round_takes_all_its_slots_or_none() -> None:
    slots = book(a=1, b=1, c=1)
    rounds = RoundSizes(spec_of(3), slots)
    slots.join("other")
    slots.take("other", 1, 1)
    assert rounds.take(0.0) is None
    assert slots.n_free == 2
    slots.give("other", "a")
    assert sorted(rounds.take(0.0).workers) == ["a", "b", "c"]


def test_a_waiting_group_gets_the_next_slots_before_those_who_came_later() -> None:
    slots = book(a=1, b=1)
    slots.join("search")
    assert slots.take("search", 1, 8) == "a"
    rounds = RoundSizes(spec_of(2), slots)
    assert rounds.take(0.0) is None
    assert slots.take("search", 1, 8) is None
    slots.give("search", "a")
    assert slots.take("search", 1, 8) is None
    assert sorted(rounds.take(0.0).workers) == ["a", "b"]


def test_fewer_ranks_begin_after_the_deadline_but_never_too_few() -> None:
    now_s = 100.0
    slots = book(a=1, b=1)
    rounds = RoundSizes(spec_of(4, 2), slots)
    assert rounds.take(now_s) is None
    now_s += 4.9
    assert rounds.take(now_s) is None
    now_s += 0.2
    assert sorted(rounds.take(now_s).workers) == ["a", "b"]
    too_few = book(a=1)
    rounds = RoundSizes(spec_of(4, 2), too_few)
    rounds.take(now_s)
    now_s += 100.0
    assert rounds.take(now_s) is None
    assert too_few.n_free == 1


def test_without_min_ranks_a_group_waits_for_all() -> None:
    now_s = 100.0
    rounds = RoundSizes(spec_of(2), book(a=1))
    rounds.take(now_s)
    now_s += 1000.0
    assert rounds.take(now_s) is None
    assert rounds.waiting.startswith("2 ranks wait: the cluster has 1 slot at present, 1 free")


def test_a_smaller_round_grows_once_there_is_room_for_a_while() -> None:
    now_s = 100.0
    slots = book(a=1)
    rounds = RoundSizes(spec_of(2, 1), slots)
    rounds.take(now_s)
    now_s += 6.0
    assert rounds.take(now_s) == Grant(("a",))
    assert not rounds.may_grow(1, now_s)
    slots.set_workers({"a": 1, "b": 1})
    assert not rounds.may_grow(1, now_s)
    now_s += 6.0
    assert rounds.may_grow(1, now_s)
    assert not rounds.may_grow(1, now_s)
    assert not rounds.may_grow(2, now_s)


def test_a_group_does_not_grow_onto_what_others_wait_for() -> None:
    now_s = 100.0
    slots = book(a=1)
    rounds = RoundSizes(spec_of(2, 1), slots)
    rounds.take(now_s)
    now_s += 6.0
    rounds.take(now_s)
    slots.join("other")
    assert slots.take("other", 1, 1) is None
    slots.set_workers({"a": 1, "b": 1})
    rounds.may_grow(1, now_s)
    now_s += 60.0
    assert not rounds.may_grow(1, now_s)


def test_nothing_is_placed_on_a_worker_that_leaves() -> None:
    slots = book(a=1, b=1)
    slots.retire("a")
    assert slots.take_group("ddp", 2) is None
    assert slots.take_group("ddp", 1) == ["b"]
    slots.set_workers({"b": 1, "c": 1})
    slots.give("ddp", "b")
    assert slots.take_group("ddp", 2) == ["b", "c"]


def test_groups_of_one_run_do_not_take_more_than_its_share() -> None:
    slots = book(a=1, b=1, c=1, d=1)
    slots.join("other")
    assert slots.take_group("ddp", 2) == ["a", "b"]
    assert slots.take_group("ddp", 2) is None
    assert slots.take("other", 1, 8) == "c"


def test_a_group_that_never_fits_is_refused_with_the_holders_and_a_way_out() -> None:
    slots = book(a=1, b=1)
    slots.join("r7")
    slots.take("r7", 1, 1)
    with pytest.raises(PlacementError) as refused:
        check_group_fits(spec_of(4), slots, 2)
    assert refused.value.message == (
        "4 ranks need as many slots, the cluster has 2, 1 free (1 held by run r7); "
        "`%cluster scale 4`, or pass -n 2"
    )
    assert refused.value.fields["holders"] == {"r7": 1}


def test_what_can_be_scaled_to_or_begun_smaller_is_admitted() -> None:
    slots = book(a=1, b=1)
    check_group_fits(spec_of(4), slots, 4)
    check_group_fits(spec_of(4, 2), slots, 2)


def test_gpus_that_nobody_has_are_refused() -> None:
    with pytest.raises(PlacementError, match="--gpus-per-rank 2: the worker of this cluster has"):
        check_group_fits(spec_of(1, gpus=2), book(a=1), 1)
    spec = spec_of(1, gpus=1)
    assert isinstance(spec.verb, Ddp)
    by_nccl = msgspec.structs.replace(spec, verb=msgspec.structs.replace(spec.verb, backend="nccl"))
    with pytest.raises(PlacementError, match=r"^--backend nccl: the worker of this cluster has no"):
        check_group_fits(by_nccl, book(a=1), 1)


def _state(*, saved: bool) -> RunState:
    state = RunState()
    fold(state, RunSubmitted(spec_of(2), 0.0))
    fold(state, TrialCreated(0, {}, 0.0))
    fold(state, AttemptStarted(0, 1, 1.0, "w", 1, "l", 0))
    if saved:
        fold(state, CheckpointSaved(0, 1, 40, "f", 1, 2.0))
    fold(state, AttemptFinished(0, 1, "moved", 3.0, 1.0))
    return state


def test_moving_is_charged_to_no_budget() -> None:
    trial = _state(saved=True).trials[0]
    assert (trial.state, trial.own_failures, trial.evictions) == ("waiting", 0, 0)


@pytest.mark.parametrize(
    ("saved", "n_ranks", "text"),
    [
        (True, 2, "restarted from the checkpoint at step 40"),
        (True, 1, "restarted with 1 of 2 ranks from the checkpoint at step 40"),
        (False, 2, "restarted from the beginning: the cell saved no checkpoint"),
    ],
)
def test_the_user_is_told_where_a_round_goes_on(saved: bool, n_ranks: int, text: str) -> None:
    trial = TrialAssignment(0, 2, {}, 1)
    place = RankPlace("g", world_size=n_ranks)
    (notice,) = round_notices(spec_of(2), _state(saved=saved), trial, place, 5.0)
    assert isinstance(notice, Notice)
    assert notice.text == text


def test_the_user_is_told_of_a_round_that_others_join_later() -> None:
    place = RankPlace("g", world_size=3, strategy="diloco", absent=(1, 2))
    trial = TrialAssignment(0, 1, {}, 1)
    (notice,) = round_notices(spec_of(3), _state(saved=True), trial, place, 5.0)
    assert isinstance(notice, Notice)
    assert notice.text == (
        "started with 1 of 3 ranks: no more slots are free; the others join when some are"
    )
