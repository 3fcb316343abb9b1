"""What machines cost by the hour, what a run has held of them, and how much it may.  Pure."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Annotated, Literal, NamedTuple, TypeAlias

import msgspec

from jupyter_ddl.protocol.telemetry import Finite

__all__ = [
    "Budget",
    "BudgetUnit",
    "Held",
    "Place",
    "Prices",
    "Rates",
    "Reading",
    "Tariff",
    "tariff_of",
]

_GIB = 1 << 30

Price = Annotated[float, msgspec.Meta(ge=0, le=sys.float_info.max)]
BudgetUnit: TypeAlias = Literal["money", "cpuh", "gpuh"]


class Rates(msgspec.Struct, frozen=True):
    """What an hour costs; what is left out costs nothing."""

    worker: Price = 0.0
    """Of a worker, whatever it has; its slots share that."""
    cpu: Price = 0.0
    memory: Price = 0.0
    """Of a GiB."""
    gpu: Price = 0.0
    """Of a GPU that ``gpus`` does not name."""
    gpus: dict[str, Price] = {}
    """By a part of the name that its driver gives it: ``A100``."""


class Prices(msgspec.Struct, frozen=True):
    """A table of prices, as a site writes it."""

    currency: str
    hour: Rates = Rates()
    nodes: dict[str, Rates] = {}
    """By a label of nodes, ``LABEL=VALUE``: what counts there in place of ``hour``."""


class Place(msgspec.Struct, frozen=True):
    """What the workers of a cluster have, as far as it may cost something."""

    cpus: int = 1
    """Of a slot."""
    memory_bytes: int | None = None
    """Of a slot; None: it has no bound of its own, and is not counted."""
    n_slots: int = 1
    """Of a worker."""
    labels: dict[str, str] = {}
    """That all nodes have on which its workers run."""
    gpus: tuple[str, ...] = ()
    """Names of the kinds that there are."""


class Tariff(msgspec.Struct, frozen=True):
    """What an hour of a slot and of a GPU costs on one cluster."""

    currency: str
    slot: float = 0.0
    gpu: float = 0.0
    gpus: dict[str, float] = {}
    label: str = ""
    """The label of nodes whose prices these are; empty: the table's general ones."""

    def of_gpu(self, name: str) -> float:
        """Of a GPU of this name: by the longest part of it that the table has."""
        known = [part for part in self.gpus if part.lower() in name.lower()]
        return self.gpus[max(known, key=len)] if known else self.gpu

    def amount(self, slot_hours: float, gpu_hours: Mapping[str, float]) -> float:
        """What so many hours cost; of GPUs by name."""
        of_gpus = sum(hours * self.of_gpu(name) for name, hours in gpu_hours.items())
        return slot_hours * self.slot + of_gpus


def tariff_of(prices: Prices, place: Place) -> Tariff:
    """The prices that hold where a cluster's workers are.

    Of several labels in the table that its nodes have, the first one counts.
    """
    pairs = {f"{name}={value}" for name, value in place.labels.items()}
    label = next((each for each in prices.nodes if each in pairs), "")
    rates = prices.nodes[label] if label else prices.hour
    memory_gib = (place.memory_bytes or 0) / _GIB
    slot = rates.worker / place.n_slots + rates.cpu * place.cpus + rates.memory * memory_gib
    return Tariff(prices.currency, slot, rates.gpu, rates.gpus, label)


class Held(msgspec.Struct, frozen=True):
    """What a run has held, or holds in an hour, and what that costs."""

    cpu_hours: Finite = 0.0
    gpu_hours: Finite = 0.0
    amount: Finite | None = None
    """In the currency of the run's prices; None where it has none."""

    def __add__(self, other: Held) -> Held:
        amounts = [each.amount for each in (self, other) if each.amount is not None]
        return Held(
            self.cpu_hours + other.cpu_hours,
            self.gpu_hours + other.gpu_hours,
            sum(amounts) if amounts else None,
        )

    def beyond(self, base: Held) -> Held:
        """What has come on top of ``base``; a meter that was set back tells of nothing."""
        amount = None if self.amount is None else max(0.0, self.amount - (base.amount or 0.0))
        cpu_hours = max(0.0, self.cpu_hours - base.cpu_hours)
        return Held(cpu_hours, max(0.0, self.gpu_hours - base.gpu_hours), amount)

    def value(self, unit: BudgetUnit) -> float:
        """In the unit of a budget."""
        if unit == "money":
            return self.amount or 0.0
        return self.cpu_hours if unit == "cpuh" else self.gpu_hours


class Reading(NamedTuple):
    """The meter of one run at one moment."""

    held: Held
    """In this session so far."""
    per_hour: Held
    """What an hour adds, as long as it holds what it holds now."""


class Budget(msgspec.Struct, frozen=True):
    """How much a run may hold or cost, over all of its sessions."""

    amount: Finite
    unit: BudgetUnit = "money"
