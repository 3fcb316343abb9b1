"""Whole GPUs by UUID: never two holders at a time, whoever sees them."""

from __future__ import annotations

import random

import pytest

from jupyter_ddl.driving.admission import admitted, check_group_fits, waiting_text
from jupyter_ddl.driving.assignments import by_rank, joining_place, place_ranks
from jupyter_ddl.driving.places import RoundSizes
from jupyter_ddl.errors import PlacementError
from jupyter_ddl.placement.gpus import GpuBook, Grant, device_text
from jupyter_ddl.placement.slots import SlotBook
from jupyter_ddl.protocol.group import RankPlace, SeenGpus
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.protocol.space import Uniform
from jupyter_ddl.protocol.verb import VerbSpec
from jupyter_ddl.verbs.ddp import Ddp
from jupyter_ddl.verbs.search import Search


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def seen(*uuids: str) -> SeenGpus:
    return SeenGpus(dict.fromkeys(uuids, "NVIDIA H100"), used_by_torch=True)


def book(gpus: dict[str, SeenGpus], n_slots: int = 1, clock: Clock | None = None) -> SlotBook:
    slots = SlotBook()
    slots.gpus = GpuBook(clock or Clock())
    slots.set_workers(dict.fromkeys(gpus, n_slots))
    slots.gpus.set_workers(gpus)
    return slots


def spec_of(verb: VerbSpec) -> RunSpec:
    return RunSpec("ddp", verb, Program(source="", filename="In [1]"), 1, "c", 0.0)


def test_two_workers_of_one_host_share_its_gpus_and_never_one_of_them() -> None:
    slots = book({"a": seen("GPU-0", "GPU-1"), "b": seen("GPU-0", "GPU-1")})
    grant = slots.take_with_gpus("ddp", 2, 1)
    assert grant == Grant(("a", "b"), (("GPU-0",), ("GPU-1",)))
    assert slots.take_with_gpus("other", 1, 1) is None
    slots.give("ddp", "a", ("GPU-0",))
    assert slots.take_with_gpus("other", 1, 1) == Grant(("a",), (("GPU-0",),))


def test_a_rank_gets_all_its_gpus_on_one_worker_or_the_group_nothing() -> None:
    slots = book({"a": seen("GPU-0"), "b": seen("GPU-1", "GPU-2")})
    assert slots.take_with_gpus("ddp", 2, 2) is None
    assert (slots.n_free, slots.gpus.n_free) == (2, 3)
    assert slots.take_with_gpus("ddp", 1, 2) == Grant(("b",), (("GPU-1", "GPU-2"),))
    assert slots.gpus.holders() == {"ddp": 2}


def test_without_gpus_it_is_as_before() -> None:
    slots = book({"a": seen("GPU-0")})
    assert slots.take_with_gpus("ddp", 1, 0) == Grant(("a",))
    assert slots.gpus.n_free == 1


def test_a_gpu_of_a_lost_worker_is_free_again_a_little_later() -> None:
    clock = Clock()
    slots = book({"a": seen("GPU-0"), "b": seen("GPU-0")}, clock=clock)
    assert slots.take_with_gpus("ddp", 1, 1) is not None
    slots.set_workers({"b": 1})
    slots.gpus.set_workers({"b": seen("GPU-0")})
    slots.give("ddp", "a", ("GPU-0",))
    assert slots.take_with_gpus("other", 1, 1) is None
    clock.now_s += 3.0
    assert slots.take_with_gpus("other", 1, 1) == Grant(("b",), (("GPU-0",),))


def test_ranks_of_one_worker_have_a_gpu_each_and_lose_them_together() -> None:
    clock = Clock()
    slots = book({"a": seen("GPU-0", "GPU-1")}, n_slots=3, clock=clock)
    assert slots.take_with_gpus("ddp", 2, 1) == Grant(("a", "a"), (("GPU-0",), ("GPU-1",)))
    assert slots.take_with_gpus("other", 1, 1) is None, "a slot is free, and no GPU"
    slots.withdraw("other")
    slots.set_workers({"b": 3})
    slots.gpus.set_workers({"b": seen("GPU-0", "GPU-1")})
    slots.give("ddp", "a", ("GPU-0",))
    assert slots.take_with_gpus("ddp", 2, 1) is None
    clock.now_s += 3.0
    assert slots.take_with_gpus("ddp", 2, 1) == Grant(("b", "b"), (("GPU-0",), ("GPU-1",)))


def test_what_another_run_holds_by_now_is_not_given_back_for_it() -> None:
    slots = book({"a": seen("GPU-0")})
    slots.take_with_gpus("first", 1, 1)
    slots.leave("first")
    slots.take_with_gpus("second", 1, 1)
    slots.give("first", "a", ("GPU-0",))
    assert slots.gpus.holders() == {"second": 1}


def test_who_waits_for_gpus_keeps_nobody_from_slots_but_later_ones_from_gpus() -> None:
    slots = book({"a": seen("GPU-0")}, n_slots=4)
    for run_id in ("first", "second", "third", "cpu"):
        slots.join(run_id)
    assert slots.take_with_gpus("first", 1, 1) is not None
    assert slots.take_with_gpus("second", 1, 1) is None
    assert slots.take("cpu", 1, 8) == "a"
    slots.give("first", "a", ("GPU-0",))
    assert slots.take_with_gpus("third", 1, 1) is None
    assert slots.take_with_gpus("second", 1, 1) is not None


def test_no_gpu_ever_has_two_holders_whatever_comes_and_goes() -> None:
    chance = random.Random(7)
    clock = Clock()
    hosts = {"a": ("G0", "G1"), "b": ("G0", "G1"), "c": ("G2", "G3", "G4")}
    slots = book({name: seen(*gpus) for name, gpus in hosts.items()}, 3, clock)
    held: list[tuple[str, Grant]] = []
    n_granted = 0
    for _ in range(3000):
        clock.now_s += chance.random()
        run_id = f"r{chance.randrange(4)}"
        match chance.randrange(4):
            case 0 | 1:
                n_ranks, per_rank = chance.randint(1, 2), chance.randint(1, 2)
                grant = slots.take_with_gpus(run_id, n_ranks, per_rank)
                if grant is not None:
                    n_granted += 1
                    held.append((run_id, grant))
                    for worker, gpus in zip(grant.workers, grant.gpus, strict=True):
                        assert set(gpus) <= set(hosts[worker])
                        assert len(gpus) == per_rank
            case 2 if held:
                owner, grant = held.pop(chance.randrange(len(held)))
                for worker, gpus in zip(grant.workers, grant.gpus, strict=True):
                    slots.give(owner, worker, gpus)
            case 3:
                slots.withdraw(run_id)
        used = [uuid for _, grant in held for gpus in grant.gpus for uuid in gpus]
        assert len(used) == len(set(used))
        assert sum(slots.gpus.holders().values()) == len(used)
    assert n_granted > 300


def test_ranks_of_a_host_see_its_gpus_in_the_order_of_their_local_ranks() -> None:
    places = place_ranks(
        ["a", "b", "c"],
        ["h1", "h1", "h2"],
        RankPlace("g"),
        (("G0", "G1"), ("G2", "G3"), ("G7", "G8")),
    )
    assert [place.gpus for place in places] == [("G0", "G1", "G2", "G3")] * 2 + [("G7", "G8")]
    assert [place.device_index for place in places] == [0, 2, 0]
    assert [place.own_gpus for place in places] == [("G0", "G1"), ("G2", "G3"), ("G7", "G8")]
    alone = place_ranks(["a"], ["h1"], RankPlace("g"))
    assert (alone[0].gpus, alone[0].own_gpus, alone[0].device_index) == ((), (), 0)


def test_of_a_round_with_fewer_places_than_ranks_the_last_that_train_are_absent() -> None:
    base = RankPlace("g", strategy="ps-async", strategy_options={"servers": 2})
    places = place_ranks(["a", "b", "c"], ["h1", "h1", "h2"], base, n_ranks=5)
    assert [place.rank for place in places] == [0, 1, 2, 3, 4]
    assert {(place.world_size, place.absent) for place in places} == {(5, (1, 2))}
    assert by_rank(["a", "b", "c"], places[0]) == ("a", "", "", "b", "c")
    assert [(p.local_rank, p.group_rank) for p in places if p.rank not in p.absent] == [
        (0, 0),
        (1, 0),
        (0, 1),
    ]
    joined = joining_place(places[1], 2, "h3", ())
    assert (joined.hosts, joined.group_rank, joined.life) == (("h1", "h2", "h3"), 2, 2)
    assert not joined.is_on_one_host
    there = joining_place(places[1], 2, "h1", (0, 1, 3))
    assert (there.hosts, there.local_rank, there.local_world_size) == (("h1", "h2"), 2, 4)


def test_by_default_a_group_takes_a_gpu_each_where_there_are_as_many() -> None:
    two = book({"a": seen("GPU-0"), "b": seen("GPU-1")})
    one = book({"a": seen("GPU-0"), "b": seen("GPU-0")})
    jax = book({"a": SeenGpus({"GPU-0": "T4"}), "b": SeenGpus({"GPU-1": "T4"})})

    def decided(verb: VerbSpec, slots: SlotBook) -> int:
        return admitted(spec_of(verb), slots, 2).gpus_per_rank

    assert decided(Ddp(2), two) == 1
    assert decided(Ddp(2), one) == 0
    assert decided(Ddp(2), jax) == 0, "a torch without CUDA has no use for them"
    assert decided(Ddp(2, backend="gloo"), two) == 0
    assert decided(Ddp(2, backend="nccl"), one) == 1
    assert decided(Ddp(2, gpus_per_rank=0), two) == 0


def test_gpus_that_are_not_there_are_refused_with_what_the_workers_say() -> None:
    none = SeenGpus(state="n/a: driver not loaded")
    slots = book({"a": none, "b": none})
    with pytest.raises(PlacementError) as refused:
        check_group_fits(spec_of(Ddp(2, gpus_per_rank=1)), slots, 2)
    assert refused.value.message == (
        "--gpus-per-rank 1: the 2 workers of this cluster have no GPU (n/a: driver not loaded); "
        "leave the option out to run on CPUs, or use workers that have GPUs"
    )
    search = Search("m", "max", 4, {"x": Uniform(low=0, high=1)}, gpus_per_trial=1)
    with pytest.raises(PlacementError, match="--gpus-per-trial 1: the 2 workers of this cluster"):
        check_group_fits(spec_of(search), slots, 2)


def test_fewer_gpus_than_asked_for_are_refused_with_numbers() -> None:
    slots = book({"a": seen("GPU-0", "GPU-1"), "b": seen("GPU-0", "GPU-1")})
    check_group_fits(spec_of(Ddp(2, gpus_per_rank=1)), slots, 2)
    check_group_fits(spec_of(Ddp(2, min_ranks=1, gpus_per_rank=2)), slots, 2)
    with pytest.raises(PlacementError) as refused:
        check_group_fits(spec_of(Ddp(2, gpus_per_rank=2)), slots, 2)
    assert refused.value.message == (
        "--gpus-per-rank 2: 2 ranks need 4 GPUs, the 2 workers of this cluster have 2, enough for "
        "1 rank; ask for fewer GPUs or ranks"
    )


def test_a_group_that_waits_for_gpus_says_who_holds_them_and_may_begin_smaller() -> None:
    clock = Clock()
    slots = book({"a": seen("GPU-0", "GPU-1")}, n_slots=4, clock=clock)
    slots.take_with_gpus("r7", 1, 1)
    slots.join("ddp")
    assert waiting_text("ddp", 2, slots, 1) == (
        "2 ranks wait for 2 GPUs: 1 of 2 free (1 held by run r7); `%runs stop r7`, or wait"
    )
    assert waiting_text("ddp", 1, slots, 2).startswith("1 rank waits for 2 GPUs: 1 of 2 free")
    rounds = RoundSizes(spec_of(Ddp(2, min_ranks=1, gpus_per_rank=1)), slots)
    assert rounds.take(clock.now_s) is None
    clock.now_s += 6.0
    grant = rounds.take(clock.now_s)
    assert grant == Grant(("a",), (("GPU-1",),))
    assert not rounds.may_grow(1, clock.now_s)
    slots.leave("r7")
    assert not rounds.may_grow(1, clock.now_s)
    clock.now_s += 6.0
    assert rounds.may_grow(1, clock.now_s)


def test_a_device_is_called_by_what_people_know_it_by() -> None:
    names = {"GPU-ab12cd34-01-02": "NVIDIA H100", "GPU-ffff0000-01-02": "NVIDIA H100"}
    assert device_text(("GPU-ab12cd34-01-02",), names) == "cuda GPU-ab12cd34 NVIDIA H100"
    assert device_text(tuple(names), names) == "cuda GPU-ab12cd34, GPU-ffff0000 NVIDIA H100"
    assert device_text((), names) == "cpu"
