"""The site's table of prices: a file in TOML or JSON that ``JUPYTER_DDL_PRICES`` names."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path
from typing import Any

import msgspec

from jupyter_ddl.driving.spending import budget_text
from jupyter_ddl.errors import OptionError
from jupyter_ddl.ledger.run_state import RunState
from jupyter_ddl.ledger.spending import currency_of
from jupyter_ddl.protocol.prices import Budget, Prices, Rates
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.store.site_table import SiteTable

__all__ = [
    "PRICES_VARIABLE",
    "check_budget",
    "check_prices",
    "known_prices",
    "priced",
    "read_prices",
    "wanted_budget",
]

PRICES_VARIABLE = "JUPYTER_DDL_PRICES"
_SECTIONS = ("currency", "hour", "nodes")
_ADVICE = (
    f"docs/how-to/search.md has an example, and an empty {PRICES_VARIABLE} does without a table"
)


def known_prices() -> Prices | None:
    """The table that this process is told of; None where there is none.

    Raises
    ------
    OptionError
        It can't be read, or holds what is no price.
    """
    text = os.environ.get(PRICES_VARIABLE, "").strip()
    return read_prices(Path(text).expanduser()) if text else None


def priced(spec: RunSpec) -> RunSpec:
    """A run with the prices of today, as it is submitted.

    Raises
    ------
    OptionError
        The table is no table, or a budget in money has none.
    """
    prices, budget = known_prices(), wanted_budget(spec)
    if budget is not None:
        check_prices(budget, prices)
    return spec if prices is None else msgspec.structs.replace(spec, prices=prices)


def wanted_budget(spec: RunSpec) -> Budget | None:
    """What a line has asked for."""
    budget = spec.limits.budget
    return None if isinstance(budget, msgspec.UnsetType) else budget


def check_prices(budget: Budget, prices: Prices | None = None) -> None:
    """Refuse money where nobody knows what anything costs.

    Raises
    ------
    OptionError
        One line, with what works without prices.
    """
    if budget.unit == "money" and (prices or known_prices()) is None:
        raise OptionError(
            f"--budget {budget.amount:g} is money, and there is no table of prices: "
            f"{PRICES_VARIABLE} names no file; --budget {budget.amount:g}cpuh counts CPU-hours"
        )


def check_budget(spec: RunSpec, state: RunState, wanted: Budget | None) -> None:
    """Refuse to go on with a run whose budget is spent already.

    Parameters
    ----------
    state
        As the run's record tells.
    wanted
        The budget from now on; None: the one that it has.

    Raises
    ------
    OptionError
        One line, with what was spent.
    """
    budget = wanted or state.budget
    if isinstance(budget, msgspec.UnsetType):
        return
    currency = currency_of(state)
    if budget.unit == "money" and not currency:
        raise OptionError(
            f"--budget {budget.amount:g}: run {spec.run_id} has no table of prices, and "
            f"nothing tells what it costs; expected hours, such as --budget {budget.amount:g}cpuh"
        )
    spent = state.spent.value(budget.unit)
    if spent >= budget.amount:
        held = budget_text(msgspec.structs.replace(budget, amount=spent), currency)
        raise OptionError(
            f"--resume {spec.run_id}: its budget of {budget_text(budget, currency)} is spent "
            f"already ({held}); expected more, on the line of its cell: --budget "
            f"{_rounded_up(2 * spent):g}{'' if budget.unit == 'money' else budget.unit}"
        )


def _rounded_up(amount: float) -> float:
    """To one digit that counts: something to propose."""
    place = 10.0 ** math.floor(math.log10(amount))
    return math.ceil(amount / place) * place


def read_prices(path: Path) -> Prices:
    """A table of prices; JSON where the name ends so, else TOML.

    Raises
    ------
    OptionError
        One line with the file, the key, its value and what was expected.
    """
    table = _Table(path, f"the table of prices ({PRICES_VARIABLE})", _ADVICE)
    found = table.read()
    table.check_names("", found, _SECTIONS)
    currency = found.get("currency")
    if not isinstance(currency, str) or not re.fullmatch("[A-Z]{3}", currency):
        table.refuse("currency", currency, "three capital letters such as EUR")
    nodes = {
        label: table.rates(f'nodes."{label}"', rates)
        for label, rates in table.mapping("nodes", found.get("nodes")).items()
        if table.is_label(label)
    }
    prices = Prices(currency, table.rates("hour", found.get("hour")), nodes)
    if not any(map(_has_price, (prices.hour, *nodes.values()))):
        table.refuse("hour", found.get("hour"), "a price above 0 of cpu, memory, gpu or worker")
    return prices


def _has_price(rates: Rates) -> bool:
    return any((rates.worker, rates.cpu, rates.memory, rates.gpu, *rates.gpus.values()))


class _Table(SiteTable):
    """Knows prices."""

    def rates(self, key: str, value: Any) -> Rates:
        table = self.mapping(key, value, "a table of prices")
        self.check_names(f"{key}.", table, Rates.__struct_fields__)
        prices = {
            name: self._price(f"{key}.{name}", each)
            for name, each in table.items()
            if name != "gpus"
        }
        gpus = self.mapping(f"{key}.gpus", table.get("gpus"), "prices by name")
        by_name = {
            name: self._price(f'{key}.gpus."{name}"', each) for name, each in gpus.items() if name
        }
        return Rates(**prices, gpus=by_name)

    def is_label(self, label: str) -> bool:
        name, equals, value = label.partition("=")
        if not (name and equals and value):
            self.refuse("nodes", label, "labels of nodes such as LABEL=VALUE")
        return True

    def _price(self, key: str, value: Any) -> float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 <= value < math.inf:
            self.refuse(key, value, "the price of an hour, a number of at least 0")
        return float(value)
