"""Places on workers: never more than there are, fairly shared, nobody starves."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from jupyter_ddl.placement.slots import SlotBook

RUNS = ("r1", "r2", "r3")


def book(*n_slots: int, runs: tuple[str, ...] = ("r1",)) -> SlotBook:
    slots = SlotBook()
    slots.set_workers({f"w{number}": n for number, n in enumerate(n_slots)})
    for run in runs:
        slots.join(run)
    return slots


def test_the_least_loaded_worker_comes_first() -> None:
    slots = book(2, 1)
    taken = Counter(slots.take("r1", 1, 9) for _ in range(3))
    assert taken == {"w0": 2, "w1": 1}
    assert slots.take("r1", 1, 9) is None


def test_a_second_assignment_may_wait_behind_the_first() -> None:
    slots = book(1)
    assert slots.take("r1", 2, 9) == "w0"
    assert slots.take("r1", 2, 9) == "w0"
    assert slots.take("r1", 2, 9) is None
    assert slots.n_busy("w0") == 1


def test_max_parallel_bounds_a_run() -> None:
    slots = book(4)
    assert [slots.take("r1", 1, 2) for _ in range(3)] == ["w0", "w0", None]


def test_two_runs_share_four_slots_evenly_once_places_come_back() -> None:
    slots = book(4, runs=("r1",))
    for _ in range(4):
        slots.take("r1", 1, 9)
    slots.join("r2")
    assert slots.take("r2", 1, 9) is None
    for _ in range(2):
        slots.give("r1", "w0")
    assert slots.take("r1", 1, 9) is None
    assert [slots.take("r2", 1, 9) for _ in range(3)] == ["w0", "w0", None]


def test_on_one_slot_two_runs_take_turns() -> None:
    slots = book(1, runs=("r1", "r2"))
    turns: list[str] = []
    assert slots.take("r1", 1, 9)
    assert slots.take("r2", 1, 9) is None
    holder = "r1"
    for _ in range(6):
        slots.give(holder, "w0")
        # The run that gave its place back is always the first to ask.
        for run in (holder, "r2" if holder == "r1" else "r1"):
            if slots.take(run, 1, 9):
                holder = run
                turns.append(run)
                break
    assert turns == ["r2", "r1", "r2", "r1", "r2", "r1"]


def test_a_run_of_long_trials_gets_a_worker_from_one_of_short_trials() -> None:
    slots = book(1, 1, runs=("r1", "r2"))
    assert [slots.take("r1", 2, 9) for _ in range(2)] == ["w0", "w1"]
    assert slots.take("r2", 1, 9) is None
    slots.give("r1", "w0")
    assert slots.take("r1", 2, 9) is None
    assert slots.take("r2", 1, 9) == "w0"
    assert slots.take("r1", 2, 9) is not None


def test_no_trial_waits_behind_one_of_another_run() -> None:
    slots = book(1, 1, runs=("r1", "r2"))
    assert slots.take("r1", 1, 9) == "w0", "it may take hours"
    assert [slots.take("r2", 2, 9) for _ in range(3)] == ["w1", "w1", None]
    slots.give("r1", "w0")
    slots.leave("r1")
    assert [slots.take("r2", 2, 9) for _ in range(3)] == ["w0", "w0", None]


def test_a_run_that_wants_no_place_any_more_blocks_nobody() -> None:
    slots = book(1, runs=("r1", "r2"))
    slots.take("r1", 1, 9)
    slots.take("r2", 1, 9)
    slots.give("r1", "w0")
    slots.withdraw("r2")
    assert slots.take("r1", 1, 9) == "w0"


def test_a_lost_worker_takes_its_places_with_it() -> None:
    slots = book(1, 1)
    slots.take("r1", 1, 9)
    slots.set_workers({"w1": 1})
    slots.give("r1", "w0")  # comes late, and changes nothing
    assert slots.take("r1", 1, 9) == "w1"
    assert slots.busy_addresses() == ["w1"]


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["take", "take", "give", "join", "leave", "withdraw", "workers"]),
        st.sampled_from(RUNS),
        st.integers(1, 2),
        st.integers(1, 4),
    ),
    max_size=60,
)


@given(ACTIONS)
def test_no_worker_is_overfull_and_no_run_is_above_its_share(
    actions: list[tuple[str, str, int, int]],
) -> None:
    slots = book(1, 2, runs=RUNS)
    held: list[tuple[str, str]] = []
    n_workers = 2
    for action, run, depth, number in actions:
        if action == "take":
            limit = min(slots.share(), number) * depth
            before = sum(owner == run for owner, _ in held)
            address = slots.take(run, depth, number)
            if address is not None:
                assert before < limit
                held.append((run, address))
                load = sum(at == address for _, at in held)
                assert load <= 2 * {"w0": 1, "w1": 2, "w2": 1}[address]
        elif action == "give" and held:
            slots.give(*held.pop(number % len(held)))
        elif action == "join":
            slots.join(run)
        elif action == "leave":
            slots.leave(run)
            held = [(owner, at) for owner, at in held if owner != run]
        elif action == "withdraw":
            slots.withdraw(run)
        elif action == "workers":
            n_workers = number % 3 + 1
            slots.set_workers({f"w{n}": n % 2 + 1 for n in range(n_workers)})
            held = [(owner, at) for owner, at in held if int(at[1:]) < n_workers]
    for address in ("w0", "w1", "w2"):
        load = sum(at == address for _, at in held)
        assert slots.n_busy(address) == min(load, {"w0": 1, "w1": 2, "w2": 1}[address])


@given(st.lists(st.sampled_from(RUNS), min_size=1, max_size=8), st.integers(1, 3))
def test_whoever_asks_on_is_served_within_one_round(order: list[str], n_slots: int) -> None:
    slots = book(n_slots, runs=RUNS)
    served: Counter[str] = Counter()
    held: list[str] = []
    for _ in range(6):
        for run in [*order, *RUNS]:
            if slots.take(run, 1, 9):
                held.append(run)
                served[run] += 1
        while held:
            slots.give(held.pop(), "w0")
    assert min(served[run] for run in RUNS) >= 2


@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from(RUNS), st.integers(1, 3))))
def test_what_runs_hold_in_all_is_what_they_hold_at_the_workers(
    steps: list[tuple[int, str, int]],
) -> None:
    slots = book(2, 1, 2, runs=RUNS)
    taken: list[tuple[str, str]] = []
    for what, run, n in steps:
        if what == 0 and (address := slots.take(run, 2, 9)) is not None:
            taken.append((run, address))
        elif what == 1:
            taken += [(run, address) for address in slots.take_group(run, n) or ()]
        elif what == 2 and taken:
            slots.give(*taken.pop(0))
        elif what == 3:
            slots.set_workers({f"w{number}": 2 for number in range(n)})
        elif what == 4:
            slots.leave(run)
            slots.join(run)
            slots.retire(f"w{n}")
        at_workers: Counter[str] = sum(slots._held.values(), Counter())
        assert slots.holders() == dict(at_workers)
        assert slots.n_slots == sum(m for _, m in slots._open_slots())


def test_a_rank_that_joins_takes_a_free_slot_that_suits_and_stands_in_no_line() -> None:
    slots = book(1, 1, 1, runs=("r1", "r2"))
    assert slots.take_group("r1", 1) == ["w0"]
    assert slots.take_joining("r1", lambda address: address == "w2") == "w2"
    assert slots.holders() == {"r1": 2}
    assert slots.take_joining("r1", lambda _: True) is None, "more than its share"
    slots.leave("r2")
    assert slots.take_joining("r1", lambda address: address == "w2") is None
    assert slots.in_line() == set()
    assert slots.take_joining("r1", lambda _: True) == "w1"


def test_who_waits_for_a_first_slot_comes_before_a_rank_that_joins() -> None:
    slots = book(4, runs=("r1", "r2"))
    assert slots.take_group("r1", 1) == ["w0"]
    assert slots.take_group("r2", 4) is None
    assert slots.take_joining("r1", lambda _: True) is None
    slots.withdraw("r2")
    assert slots.take_joining("r1", lambda _: True) == "w0"
