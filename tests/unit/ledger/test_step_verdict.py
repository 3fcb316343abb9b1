"""One sentence about what steps wait for: the right rank, the right cause, what to try."""

from __future__ import annotations

import random

import pytest

from jupyter_ddl.ledger.step_parts import hidden_share, step_parts, step_verdict
from jupyter_ddl.protocol.events import StepsTimed


def timed(
    rank: int,
    *,
    data_s: float = 0.0,
    compute_s: float = 0.01,
    exchange_s: float | None = 0.0,
    n_steps: int = 100,
    n_workers: int | None = 0,
    hidden: float | None = None,
) -> StepsTimed:
    """Seconds are those of one step."""
    step_s = data_s + compute_s + (exchange_s or 0.0)
    return StepsTimed(
        trial=0,
        attempt=1,
        rank=rank,
        at_s=1.0,
        n_steps=n_steps,
        step_s=step_s * n_steps,
        data_s=data_s * n_steps,
        exchange_s=None if exchange_s is None else exchange_s * n_steps,
        n_samples=32 * n_steps,
        n_workers=n_workers,
        hidden_share=hidden,
    )


def verdict(*ranks: StepsTimed, n_ranks: int | None = None) -> str:
    hosts = {rank: f"host-{rank}" for rank in range(n_ranks or len(ranks))}
    by_rank = {each.rank: each for each in ranks}
    return step_verdict(step_parts(by_rank), hosts, hidden=hidden_share(by_rank))


def test_who_waits_for_its_data_and_by_how_much() -> None:
    text = verdict(timed(0, data_s=0.005, exchange_s=0.005), timed(1, data_s=0.01))
    assert text == "38 % of a step waits for data; rank 1 is slowest (50 %): try num_workers=2"
    text = verdict(timed(0, data_s=0.01, n_workers=4), timed(1, data_s=0.01, n_workers=4))
    assert text == "50 % of a step waits for data: try num_workers=8 or a cheaper transform"


def test_the_rank_that_others_wait_for_and_whether_it_computes_or_loads() -> None:
    slow = timed(1, compute_s=0.05, exchange_s=0.002)
    text = verdict(timed(0, exchange_s=0.042), slow, timed(2, exchange_s=0.042))
    assert text == (
        "rank 1 is slowest: the others wait 77 % of a step for it; it computes for 50 ms, they for "
        "10 ms: look at what else runs on host-1, or share the work out evenly"
    )
    slow = timed(1, data_s=0.04, exchange_s=0.002)
    text = verdict(timed(0, exchange_s=0.042), slow, timed(2, exchange_s=0.042))
    assert text == (
        "rank 1 is slowest: the others wait 77 % of a step for it; it waits 40 ms for data, they "
        "0 ms: try num_workers=2"
    )


def test_gradients_on_the_way_and_a_training_that_waits_for_nothing() -> None:
    both = (timed(0, exchange_s=0.01), timed(1, exchange_s=0.01))
    assert verdict(*both).startswith("50 % of a step exchanges gradients: try a larger batch_size")
    assert verdict(timed(0), timed(1)) == "100 % of a step of 10 ms is compute"
    assert verdict(timed(0, exchange_s=None)) == "100 % of a step of 10 ms is compute"


@pytest.mark.parametrize(
    ("strategy", "makes_steps", "advice"),
    [
        ("ddp", False, "gradients: try a larger batch_size, or model.no_sync() while"),
        ("ddp", True, "gradients: try a larger batch_size (with accumulate=… if memory is short)"),
        ("fsdp", False, "parameters and gradients: try a larger batch_size, or --strategy ddp if"),
        ("fsdp", True, "is short), or --strategy ddp if each rank has room for the whole model"),
        ("diloco", True, "gradients: try a larger batch_size, or a larger --sync-every"),
        ("ps-async", True, "gradients: try a larger batch_size, or more --servers, or --compress"),
        ("a-package's", False, "gradients: try a larger batch_size"),
    ],
)
def test_what_makes_ranks_exchange_less_is_what_their_strategy_knows(
    strategy: str, makes_steps: bool, advice: str
) -> None:
    both = {rank: timed(rank, exchange_s=0.01) for rank in range(2)}
    text = step_verdict(step_parts(both), {0: "a", 1: "b"}, strategy, makes_steps=makes_steps)
    assert advice in text
    assert ("no_sync" in text) is (strategy == "ddp" and not makes_steps)


def test_what_the_backward_pass_hides_of_the_exchange_is_told() -> None:
    both = (timed(0, exchange_s=0.01, hidden=0.25), timed(1, exchange_s=0.01, hidden=0.35))
    assert verdict(*both).startswith(
        "50 % of a step exchanges gradients, and the backward pass hides 30 % of the exchange: try"
    )
    one = timed(0, hidden=0.9)
    assert verdict(one, timed(1)) == (
        "100 % of a step of 10 ms is compute; the backward pass hides 90 % of the exchange"
    )
    assert verdict(timed(0, hidden=0.0)) == "100 % of a step of 10 ms is compute"


@pytest.mark.parametrize("n_steps", [0, 1, 4])
def test_too_few_steps_say_nothing(n_steps: int) -> None:
    assert verdict(timed(0, n_steps=n_steps), timed(1)) == ""


def test_nobody_is_blamed_before_all_ranks_have_told() -> None:
    assert verdict(timed(0, exchange_s=0.5), n_ranks=2) == ""
    assert verdict() == ""


def test_parts_are_a_whole_whatever_ranks_tell() -> None:
    chance = random.Random(5)
    for _ in range(500):
        told = {
            rank: timed(
                rank,
                data_s=chance.choice([0.0, chance.expovariate(1)]),
                compute_s=chance.expovariate(1),
                exchange_s=chance.choice([None, 0.0, chance.expovariate(1)]),
                n_steps=chance.randrange(1, 50),
            )
            for rank in range(chance.randrange(1, 6))
        }
        parts = step_parts(told)
        assert parts.keys() == told.keys()
        for each in parts.values():
            pieces = (each.data_s, each.compute_s, each.waiting_s or 0.0, each.exchange_s or 0.0)
            assert min(pieces) >= 0.0
            assert sum(pieces) == pytest.approx(each.step_s)
        waiting = [each.waiting_s for each in parts.values() if each.waiting_s is not None]
        assert not waiting or min(waiting) == 0.0
        hosts = dict.fromkeys(told, "h")
        assert step_verdict(parts, hosts) or min(each.n_steps for each in parts.values()) < 5
