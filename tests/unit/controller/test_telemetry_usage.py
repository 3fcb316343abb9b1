"""CPU-hours and GPU-hours: what was held, for as long as it was held."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_ddl.controller.telemetry import UsageMeter
from jupyter_ddl.protocol.prices import Held, Tariff
from tests.unit.controller.telemetry_samples import rank


def test_hours_are_slots_times_cpus_times_time() -> None:
    meter = UsageMeter(cpus_per_slot=4, now_s=0.0)
    meter.poll(100.0, {"run-1": 2}, {"run-1": {"A100": 8}})
    meter.poll(1900.0, {"run-1": 1}, {})
    meter.poll(3700.0, {}, {})
    used = meter.of("run-1")
    assert used is not None
    assert used.cpu_hours == pytest.approx((2 * 1800 + 1 * 1800) * 4 / 3600)
    assert used.gpu_hours == pytest.approx(8 * 1800 / 3600)
    assert meter.total() == pytest.approx((used.cpu_hours, used.gpu_hours))


def test_each_kind_of_gpu_has_its_price_and_what_is_held_now_is_the_rate() -> None:
    tariff = Tariff("EUR", slot=0.5, gpu=1.0, gpus={"A100": 3.0})
    meter = UsageMeter(cpus_per_slot=2, now_s=0.0)
    meter.poll(0.0, {"run-1": 2}, {"run-1": {"NVIDIA A100": 1, "Tesla T4": 1}})
    meter.poll(3600.0, {"run-1": 1}, {"run-1": {"Tesla T4": 1}})
    held, per_hour = meter.read("run-1", tariff)
    assert held == Held(4.0, 2.0, pytest.approx(2 * 0.5 + 3.0 + 1.0))
    assert per_hour == Held(2.0, 1.0, pytest.approx(0.5 + 1.0))
    assert meter.read("run-1", None).held == Held(4.0, 2.0, None)
    assert meter.read("run-2", tariff).held == Held(0.0, 0.0, 0.0)


def test_of_a_run_that_held_nothing_nothing_is_known() -> None:
    assert UsageMeter(1, 0.0).of("run-1") is None


def test_the_peak_of_each_rank_is_kept() -> None:
    meter = UsageMeter(1, 0.0)
    meter.observe([rank(0, memory_bytes=5), rank(2, memory_bytes=7)])
    meter.observe([rank(0, memory_bytes=3), rank(2, memory_bytes=9), rank(64, memory_bytes=1)])
    meter.observe([rank(1, run_id="run-2")])
    used = meter.of("run-1")
    assert used is not None
    assert used.peak_memory_bytes == (5, None, 9)
    assert meter.of("run-2") is None


def test_a_clock_that_stands_still_charges_nothing() -> None:
    meter = UsageMeter(1, 10.0)
    meter.poll(5.0, {"run-1": 1}, {})
    meter.poll(5.0, {"run-1": 1}, {})
    assert meter.total() == (0.0, 0.0)


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 5)), max_size=400))
def test_the_total_is_kept_when_old_runs_are_forgotten(held: list[tuple[int, int]]) -> None:
    meter = UsageMeter(1, 0.0)
    for second, (run, n_slots) in enumerate(held):
        meter.poll(float(second), {f"run-{run}": n_slots}, {})
    meter.poll(float(len(held)), {}, {})
    assert meter.total()[0] == pytest.approx(sum(n for _, n in held) / 3600)


def test_no_more_than_200_runs_are_remembered_and_active_ones_always() -> None:
    meter = UsageMeter(1, 0.0)
    for second in range(500):
        meter.poll(float(second), {"first": 1, f"run-{second}": 1}, {})
    assert meter.of("first") is not None
    assert meter.of("run-10") is None
    assert meter.of("run-450") is not None
