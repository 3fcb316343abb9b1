"""A cost model finds the step that it was given, says what it assumes, and refuses what is none."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_ddl.errors import OptionError
from jupyter_ddl.ledger.reducer import fold_all
from jupyter_ddl.ledger.run_state import RunState
from jupyter_ddl.ledger.scaling import SIZES, Measured, fit_cost, measured_of, scaling_of
from jupyter_ddl.ledger.step_cost import ESTIMATED, Cost, largest
from jupyter_ddl.protocol.events import (
    AttemptStarted,
    RankStarted,
    RunStarted,
    RunSubmitted,
    StepsTimed,
    TrialCreated,
)
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.verbs.ddp import Ddp

LATENCY_S, BYTE_S, N_BYTES = 200e-6, 2e-9, 4_000_000


def measured(
    n_ranks: int, *, n_samples: float = 32.0, crowding: float = 1.0, strategy: str = "ddp"
) -> Measured:
    """A step of 1 ms and 50 µs a sample, on a ring whose messages and bytes cost something."""
    own_s = crowding * (0.001 + 50e-6 * n_samples)
    passes = 2 * (n_ranks - 1)
    exchange_s = crowding * (passes * LATENCY_S + passes / n_ranks * N_BYTES * BYTE_S)
    return Measured(
        run_id=f"r{n_ranks}",
        strategy=strategy,
        n_ranks=n_ranks,
        n_samples=n_samples,
        step_s=own_s + exchange_s,
        data_s=0.0,
        compute_s=own_s,
        waiting_s=0.0,
        exchange_s=exchange_s,
        gradient_bytes=N_BYTES,
        crowding=crowding,
    )


def test_what_a_ring_costs_is_found_and_predicted() -> None:
    found = scaling_of([measured(1), measured(2), measured(4)])
    assert found.cost.message_s == pytest.approx(LATENCY_S)
    assert found.cost.byte_s == pytest.approx(BYTE_S)
    true = measured(64)
    (of_64,) = [row for row in found.rows if row[:2] == (64, "ddp")]
    assert of_64[2] == pytest.approx(measured(1).step_s / true.step_s)
    assert [row[0] for row in found.rows if row[1] == "ddp"] == list(SIZES)
    assert found.notes == ()
    fits = {row.strategy: row.efficiency for row in found.rows if row[::4] == (64, "fit")}
    assert fits["fsdp"] < fits["ddp"]  # sharded parameters travel once more


def test_an_error_is_that_of_a_fit_which_has_not_seen_this_size() -> None:
    known = [measured(1), measured(2), measured(4), measured(8)]
    errors = {row[0]: row[3] for row in scaling_of(known).rows if row[1] == "ddp"}
    assert errors[4] == pytest.approx(0.0, abs=1e-9)
    assert errors[16] is None
    slow = msgspec.structs.replace(measured(4), step_s=measured(4).step_s * 2)
    wrong = {r[0]: r[3] for r in scaling_of([*known[:2], slow]).rows if r[1] == "ddp"}
    assert wrong[4] is not None
    assert wrong[4] > 0.4


def test_ranks_that_share_cpus_are_marked_and_predicted_with_one_each() -> None:
    found = scaling_of([measured(1), measured(2), measured(4, crowding=2.0)])
    assert any(note.startswith("4 ranks shared CPUs (2 each)") for note in found.notes)
    alone = scaling_of([measured(1), measured(2), measured(4)])
    assert [row[2] for row in found.rows] == pytest.approx([row[2] for row in alone.rows])
    errors = {row[0]: row[3] for row in found.rows if row[1] == "ddp"}
    # 1 and 2 ranks can't tell a message from its bytes: half of what they assume is wrong.
    assert errors[4] == pytest.approx(0.04, abs=0.02)


def test_runs_that_divide_one_batch_are_predicted_to_divide_it_further() -> None:
    found = scaling_of([measured(1, n_samples=64), measured(2, n_samples=32)])
    assert found.cost.keeps_whole_batch
    assert found.cost.samples(4) == 16
    assert found.cost.step_s == pytest.approx(0.001)
    assert found.cost.sample_s == pytest.approx(50e-6)


def test_one_size_says_what_is_assumed() -> None:
    alone = scaling_of([measured(1)])
    assert any("only 1 rank measured" in note for note in alone.notes)
    assert any("50 µs a message" in note for note in alone.notes)
    assert all(row[3] is None for row in alone.rows)
    two = scaling_of([measured(2), measured(2)])
    assert any("only 2 ranks measured" in note for note in two.notes)
    assert any("a message is taken to need" in note for note in two.notes)
    exchange_s = two.cost.seconds(2, "ddp") - two.cost.seconds(1, "ddp")
    assert exchange_s == pytest.approx(measured(2).exchange_s)


def test_an_exchange_that_was_not_measured_is_what_a_rank_does_not_need_for_itself() -> None:
    blind = msgspec.structs.replace(
        measured(2, strategy="fsdp"), exchange_s=None, waiting_s=None, compute_s=0.1
    )
    cost = fit_cost([measured(1), blind])
    assert cost.seconds(2, "fsdp") == pytest.approx(blind.step_s)


def cost(**changed: float) -> Cost:
    """10 ms of a rank's own for 20 samples; an exchange costs nothing but what ``changed`` says."""
    free = Cost(
        n_samples=20.0,
        n_ranks=1,
        keeps_whole_batch=False,
        step_s=0.002,
        sample_s=0.0004,
        message_s=0.0,
        byte_s=0.0,
        n_bytes=1_000_000,
        straggling_s=0.0,
    )
    return msgspec.structs.replace(free, **changed)


def test_a_pipeline_on_a_free_network_loses_its_bubble_and_waits_for_messages() -> None:
    # 4 ranks with 16 micro-batches: (S - 1) / (M + S - 1) = 3 / 19.
    assert cost().efficiency(4, "pipeline") == pytest.approx(1 - 3 / 19)
    # A batch fills 19 slots forward and 19 back, with a message between each and the next.
    assert cost(message_s=1e-4).seconds(4, "pipeline") == pytest.approx(0.010 * 19 / 16 + 36e-4)
    # Its parameters stay where they are.
    assert cost(byte_s=1e-8).efficiency(4, "pipeline") == cost().efficiency(4, "pipeline")


@pytest.mark.parametrize("strategy", ["local-sgd", "diloco"])
def test_who_meets_in_every_eighth_step_exchanges_an_eighth_of_ddps(strategy: str) -> None:
    one = cost(message_s=1e-4, byte_s=1e-9, straggling_s=0.001)
    exchange_s = 6e-4 + 6 / 4 * 1e-3
    waiting_s = 0.001 * largest(4)
    assert one.seconds(4, "ddp") == pytest.approx(0.010 + waiting_s + exchange_s)
    assert one.seconds(4, strategy) == pytest.approx(0.010 + waiting_s + exchange_s / 8)


def test_a_server_serves_one_worker_after_another() -> None:
    one = cost(message_s=1e-4, byte_s=1e-9, straggling_s=0.001)
    served_s = 2 * (1e-4 + 1e-3)
    assert one.seconds(4, "ps-sync") == pytest.approx(0.010 + 0.001 * largest(3) + 3 * served_s)
    # Three workers keep it busy for 6.6 ms in the 12.2 ms of their steps; 63 never let it rest.
    assert one.seconds(4, "ps-async") == pytest.approx(0.010 + served_s)
    assert one.efficiency(4, "ps-async") == pytest.approx(3 / 4 * 0.010 / (0.010 + served_s))
    assert one.efficiency(64, "ps-async") == pytest.approx(0.010 / (64 * served_s))
    # On a free network only the server's own rank is lost, with one batch for all workers, too.
    for strategy in ("ps-sync", "ps-async"):
        assert cost().efficiency(4, strategy) == pytest.approx(3 / 4)
        shared = cost(step_s=0.0, keeps_whole_batch=True)
        assert shared.seconds(4, strategy) == pytest.approx(0.008 / 3)
        assert shared.efficiency(4, strategy) == pytest.approx(3 / 4)


def test_what_is_estimated_is_told_and_the_best_trains_as_one_process_does() -> None:
    found = scaling_of([measured(1), measured(2), measured(4)])
    told = {row.strategy: row.basis for row in found.rows}
    assert told == dict.fromkeys(("ddp", "fsdp"), "fit") | dict.fromkeys(ESTIMATED, "estimate")
    assert found.assumed.keys() == set(ESTIMATED)
    of_64 = {row.strategy: row.efficiency for row in found.rows if row.n_ranks == 64}
    # 18.6 ms of a step of ddp are exchange, 2.3 of one of local SGD, which is another training.
    assert found.fastest[64] == "local-sgd"
    assert found.best[64] == max({"ddp", "fsdp", "pipeline", "ps-sync"}, key=of_64.__getitem__)
    cheap = [
        msgspec.structs.replace(measured(n), exchange_s=0.0, step_s=measured(1).step_s)
        for n in (1, 2, 4)
    ]
    assert scaling_of(cheap).best[64] == "ddp"
    assert "64 ranks" in found.text


def group(n_steps: int = 100, *, verb: Ddp | None = None, n_told: int = 2) -> RunState:
    """Two ranks on one host of one CPU."""
    spec = RunSpec("d1", verb or Ddp(2), Program("pass", "In [1]"), 7, "local", 1000.0)
    started = [
        RankStarted(0, 1, rank, 1.0, f"w{rank}", "host", 10, "a.log", 0, world_size=2)
        for rank in range(2)
    ]
    timed = [
        StepsTimed(
            trial=0,
            attempt=1,
            rank=rank,
            at_s=2.0,
            n_steps=n_steps,
            step_s=0.01 * n_steps,
            data_s=0.001 * n_steps,
            exchange_s=(0.002 + 0.001 * rank) * n_steps,
            n_samples=32 * n_steps,
            gradient_bytes=4096,
            n_cpus=1,
        )
        for rank in range(n_told)
    ]
    return fold_all(
        [
            RunSubmitted(spec, 1.0),
            RunStarted(1.0, 1, 2, 1, 1),
            TrialCreated(0, {}, 1.0),
            AttemptStarted(0, 1, 1.0, "w0", 10, "a.log", 0),
            *started,
            *timed,
        ]
    )


def test_a_runs_step_is_the_mean_of_its_ranks() -> None:
    found = measured_of(group())
    assert (found.n_ranks, found.n_samples, found.strategy) == (2, 32, "ddp")
    assert found.step_s == pytest.approx(0.01)
    assert found.exchange_s == pytest.approx(0.002)
    assert found.waiting_s == pytest.approx(0.0005)
    assert (found.gradient_bytes, found.crowding) == (4096, 2.0)


@pytest.mark.parametrize(
    ("state", "text"),
    [
        (group(n_steps=4), "have told of 4 optimizer steps, expected all of at least 5"),
        (group(n_told=1), "1 of 2 ranks of run d1 have told"),
        (RunState(), "it is no training on ranks"),
        (group(verb=Ddp(2, strategy="pipeline")), "--strategy pipeline, whose ranks share the wo"),
        (group(verb=Ddp(2, strategy="diloco")), "--strategy diloco, whose ranks exchange nothing"),
        (group(verb=Ddp(2, strategy="ps-sync")), "--strategy ps-sync, whose ranks exchange with"),
        (
            group(verb=Ddp(2, strategy="fsdp", strategy_options={"mesh": "tp=2", "tp_plan": "{}"})),
            "--strategy fsdp, with layers cut over tp, whose ranks share the work",
        ),
    ],
)
def test_what_tells_too_little_or_of_other_costs_is_refused(state: RunState, text: str) -> None:
    with pytest.raises(OptionError, match=r"^scaling") as caught:
        measured_of(state)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)
