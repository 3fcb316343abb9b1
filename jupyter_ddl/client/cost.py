"""What ``--dry-run`` tells of the cost of a run, by prices and by earlier runs of its cell."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from jupyter_ddl.client.environment import status_now
from jupyter_ddl.client.prices import priced, wanted_budget
from jupyter_ddl.client.run_names import read_lines
from jupyter_ddl.driving.spending import budget_text
from jupyter_ddl.errors import JupyterDDLError
from jupyter_ddl.formats import format_counted, format_duration, format_money
from jupyter_ddl.ledger.reader import LedgerReader, read_submitted
from jupyter_ddl.ledger.reducer import fold_all
from jupyter_ddl.protocol.prices import Place, Prices, Tariff, tariff_of
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.store.paths import ledger_path

__all__ = ["cost_now"]

_N_LOOKED_AT = 50
"""Newest runs among which a dry run looks for those of its cell."""
_FEW = 4
"""So many trials have no quarters: the shortest and the longest are told."""
_HOUR_S = 3600.0


def cost_now(spec: RunSpec) -> list[str]:
    """What a dry run tells of the cost; nothing where there are no prices.

    Raises
    ------
    OptionError
        The table of prices is none.
    """
    prices = priced(spec).prices
    return list(_lines(spec, prices)) if isinstance(prices, Prices) else []


def _lines(spec: RunSpec, prices: Prices) -> Iterator[str]:
    status = status_now()
    place = Place() if status is None else status.place
    tariff = tariff_of(prices, place)
    per_hour = _of_trial(spec, tariff, place, _HOUR_S)
    of = "the training" if spec.verb.can.has_ranks else f"each {spec.verb.nouns.trial} under way"
    where = "a local cluster" if status is None else f"cluster {status.name}"
    label = f", by the prices of nodes with {tariff.label}" if tariff.label else ""
    yield f"Cost: {format_money(per_hour, prices.currency)} an hour for {of}, on {where}{label}"
    earlier = _earlier_times(spec)
    if earlier is not None:
        yield _range_line(spec, tariff, place, *earlier)
    budget = wanted_budget(spec)
    if budget is not None and budget.unit == "money":
        yield f"  Budget: {budget_text(budget, prices.currency)}"


def _of_trial(spec: RunSpec, tariff: Tariff, place: Place, seconds: float) -> float:
    """What one trial costs that takes so long."""
    hours = seconds / _HOUR_S * spec.n_ranks
    name = place.gpus[0] if len(place.gpus) == 1 else ""
    return tariff.amount(hours, {name: hours * spec.gpus_per_rank})


def _range_line(
    spec: RunSpec, tariff: Tariff, place: Place, run_id: str, times_s: Sequence[float]
) -> str:
    low_s, high_s = _range(times_s)
    low, high = (
        format_money(spec.n_trials * _of_trial(spec, tariff, place, time_s), tariff.currency, True)
        for time_s in (low_s, high_s)
    )
    cost = low if low == high else f"{low} to {high}"
    took = " to ".join(dict.fromkeys((format_duration(low_s), format_duration(high_s))))
    nouns = spec.verb.nouns
    if spec.verb.can.has_ranks:
        return f"  About {cost} in all, if it takes as long as run {run_id} did ({took})"
    return (
        f"  About {cost} for {format_counted(spec.n_trials, nouns.trial, nouns.trials)}, if each "
        f"takes as long as those of run {run_id} did ({took})"
    )


def _range(times_s: Sequence[float]) -> tuple[float, float]:
    """The middle half, or all where there are few."""
    if len(times_s) <= _FEW:
        return min(times_s), max(times_s)
    low, _, high = statistics.quantiles(times_s, n=4)
    return low, high


def _earlier_times(spec: RunSpec) -> tuple[str, list[float]] | None:
    """The newest run of the same cell that has finished trials, and how long each took."""
    source = spec.program.source.strip()
    lines = [line for line in read_lines() if not line.is_damaged]
    for line in lines[:_N_LOOKED_AT]:
        path = ledger_path(line.run_id)
        try:
            if read_submitted(path).spec.program.source.strip() != source:
                continue
            with LedgerReader(path, stops_at_damage=True) as reader:
                state = fold_all(reader.poll())
        except JupyterDDLError:
            continue  # it is removed in this moment
        times_s = [
            trial.duration_s
            for trial in state.trials.values()
            if trial.state in ("complete", "pruned") and trial.duration_s is not None
        ]
        if times_s:
            return line.run_id, times_s
    return None
