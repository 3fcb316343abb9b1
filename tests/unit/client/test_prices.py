"""The site's table of prices: what it may hold, and one line for what it may not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jupyter_ddl.cell.options import read_budget
from jupyter_ddl.client.prices import check_budget, known_prices, priced, read_prices
from jupyter_ddl.errors import OptionError
from jupyter_ddl.ledger.run_state import RunState
from jupyter_ddl.protocol.prices import Budget, Held, Place, Prices, Rates, tariff_of
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.protocol.run import Limits, RunSpec
from jupyter_ddl.verbs.map import Map

TABLE = """
currency = "EUR"
[hour]
cpu = 0.04
memory = 0.005
gpu = 1
gpus = { "A100" = 3.1, "A100-SXM4-80GB" = 4 }
[nodes."pool=spot"]
cpu = 0.01
[nodes."size=large"]
worker = 2.4
"""
GIB = 1 << 30


def table(folder: Path, text: str, name: str = "prices.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def run_with(budget: Budget | None = None, prices: Prices | None = None) -> RunSpec:
    limits = Limits() if budget is None else Limits(budget=budget)
    spec = RunSpec("r1", Map("xs", "x", 2), Program("", "In [1]"), 1, "c", 0.0, limits=limits)
    return (
        spec
        if prices is None
        else RunSpec("r1", spec.verb, spec.program, 1, "c", 0.0, limits=limits, prices=prices)
    )


def test_a_slot_costs_what_it_holds_and_a_gpu_by_the_longest_name_that_fits(tmp_path: Path) -> None:
    prices = read_prices(table(tmp_path, TABLE))
    tariff = tariff_of(prices, Place(cpus=2, memory_bytes=4 * GIB))
    assert tariff.amount(10.0, {}) == pytest.approx(10 * (2 * 0.04 + 4 * 0.005))
    assert tariff.of_gpu("NVIDIA A100-SXM4-80GB") == 4.0
    assert tariff.of_gpu("NVIDIA A100-PCIE-40GB") == 3.1
    assert tariff.of_gpu("") == tariff.of_gpu("Tesla T4") == 1.0
    assert tariff.amount(0.0, {"Tesla T4": 2.0, "nvidia a100": 1.0}) == pytest.approx(5.1)


def test_a_label_of_the_nodes_counts_in_place_of_the_general_prices(tmp_path: Path) -> None:
    prices = read_prices(table(tmp_path, TABLE))
    spot = tariff_of(prices, Place(labels={"pool": "spot", "size": "large"}))
    assert (spot.label, spot.slot, spot.gpu) == ("pool=spot", 0.01, 0.0)
    shared = tariff_of(prices, Place(n_slots=8, labels={"size": "large"}))
    assert shared.slot == pytest.approx(0.3)
    assert tariff_of(prices, Place(labels={"pool": "other"})).label == ""


def test_json_holds_the_same(tmp_path: Path) -> None:
    text = json.dumps({"currency": "USD", "hour": {"cpu": 1}})
    assert read_prices(table(tmp_path, text, "prices.json")) == Prices("USD", Rates(cpu=1.0))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "currency is missing; expected three capital letters such as EUR"),
        ('currency = "€"', "currency is '€'; expected three capital"),
        ('currency = "EUR"', "hour is missing; expected a price above 0"),
        ('currency = "EUR"\nhour = 3', "hour is 3; expected a table of prices"),
        ('currency = "EUR"\n[hour]\ncpu = "cheap"', "hour.cpu is 'cheap'; expected the price"),
        ('currency = "EUR"\n[hour]\ncpu = -1', "hour.cpu is -1; expected the price"),
        ('currency = "EUR"\n[hour]\ncpu = nan', "hour.cpu is nan; expected the price"),
        ('currency = "EUR"\n[hour]\ncpu = true', "hour.cpu is 'True'; expected the price"),
        ('currency = "EUR"\n[hour]\ncpus = 1', "hour.cpus is 1; expected only worker, cpu"),
        ('currency = "EUR"\nhours = 1', "hours is 1; expected only currency, hour, nodes; did you"),
        ('currency = "EUR"\n[hour.gpus]\nT4 = "x"', "hour.gpus.\"T4\" is 'x'; expected the price"),
        ('currency = "EUR"\n[nodes.spot]\ncpu = 1', "nodes is 'spot'; expected labels of nodes"),
        ('currency = "EUR"\n[nodes."a=b"]\ncpu = []', "nodes.\"a=b\".cpu is '[]'; expected the"),
        ("currency = ", "is no TOML: "),
    ],
)
def test_nonsense_is_one_line_with_file_key_and_value(tmp_path: Path, text: str, told: str) -> None:
    path = table(tmp_path, text)
    with pytest.raises(OptionError) as refused:
        read_prices(path)
    assert refused.value.message.startswith(f"the table of prices (JUPYTER_DDL_PRICES) {path}: ")
    assert told in refused.value.message
    assert "\n" not in refused.value.message


@pytest.mark.parametrize(
    ("name", "data", "told"),
    [
        ("p.json", b"[1]", "holds list; expected a table"),
        ("p.json", b"[" * 100_000, "is no JSON: "),
        ("p.toml", b"\xff", "is no text"),
        ("p.toml", b"#" * (1 << 21), "is larger than 1,048,576 bytes"),
    ],
)
def test_a_file_that_is_no_table_is_refused(
    tmp_path: Path, name: str, data: bytes, told: str
) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(OptionError, match=told):
        read_prices(path)


def test_a_table_that_is_not_there_is_refused_and_none_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JUPYTER_DDL_PRICES", raising=False)
    assert known_prices() is None
    monkeypatch.setenv("JUPYTER_DDL_PRICES", str(tmp_path / "none.toml"))
    with pytest.raises(OptionError, match="can't be read: No such file"):
        known_prices()
    monkeypatch.setenv("JUPYTER_DDL_PRICES", str(table(tmp_path, TABLE)))
    assert known_prices() == priced(run_with()).prices


def test_a_budget_in_money_needs_a_table_and_one_in_hours_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("JUPYTER_DDL_PRICES", raising=False)
    with pytest.raises(OptionError, match="--budget 20 is money, and there is no table of prices"):
        priced(run_with(read_budget("20")))
    hours = run_with(read_budget("20cpuh"))
    assert priced(hours) == hours


def test_a_budget_that_is_spent_already_is_refused_with_a_larger_one() -> None:
    spec = run_with(read_budget("1.5"), Prices("EUR", Rates(cpu=1.0)))
    state = RunState(spec=spec, budget=read_budget("1.5"), spent=Held(3.0, 0.0, 1.52))
    with pytest.raises(OptionError) as refused:
        check_budget(spec, state, None)
    assert refused.value.message == (
        "--resume r1: its budget of € 1.50 is spent already (€ 1.52); expected more, on the line "
        "of its cell: --budget 4"
    )
    with pytest.raises(OptionError, match=r"its budget of 2 CPU-hours is spent already \(3 CPU"):
        check_budget(spec, state, read_budget("2cpuh"))
    check_budget(spec, state, read_budget("1.6"))


@pytest.mark.parametrize("spent", [3_123_456.0, 0.00002])
def test_a_budget_that_is_proposed_can_be_given(spent: float) -> None:
    spec = run_with(read_budget(str(spent)), Prices("JPY", Rates(cpu=1.0)))
    state = RunState(spec=spec, budget=read_budget(str(spent)), spent=Held(3.0, 0.0, spent))
    with pytest.raises(OptionError) as refused:
        check_budget(spec, state, None)
    check_budget(spec, state, read_budget(refused.value.message.rpartition("--budget ")[2]))


def test_money_for_a_run_that_was_begun_without_prices_is_refused() -> None:
    spec = run_with()
    with pytest.raises(OptionError, match="run r1 has no table of prices"):
        check_budget(spec, RunState(spec=spec), read_budget("3"))
    check_budget(spec, RunState(spec=spec), None)
