"""What more ranks would give: a cost model of a training step, fitted to runs.  Pure.

A step on p ranks takes as long as its data and its compute, each per sample and the latter with a
constant, the wait for the slowest rank, and the exchange of gradients.  The exchange is that of a
ring (Thakur et al. 2005, https://doi.org/10.1177/1094342005051521): 2 (p - 1) messages, and
2 (p - 1) / p times the parameters' bytes through each rank.  The slowest of p ranks is slower than
their mean by as much as the largest of p normal variates is above it.  Strategies whose steps are
others are estimated from the same parameters: :mod:`jupyter_ddl.ledger.step_cost`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Literal, NamedTuple

import msgspec

from jupyter_ddl.errors import OptionError
from jupyter_ddl.formats import format_bytes, format_counted, format_percent
from jupyter_ddl.ledger.run_state import RunState
from jupyter_ddl.ledger.step_cost import (
    ASSUMED,
    ESTIMATED,
    OTHER_TRAININGS,
    Cost,
    largest,
    traffic,
)
from jupyter_ddl.ledger.step_parts import step_parts
from jupyter_ddl.protocol.run import RunSpec

__all__ = [
    "MIN_STEPS",
    "SIZES",
    "Cost",
    "Measured",
    "Prediction",
    "Scaling",
    "fit_cost",
    "measured_of",
    "scaling_of",
]

SIZES = (2, 4, 8, 16, 32, 64)
"""Ranks that are predicted, beside those that were measured."""
MIN_STEPS = 5
"""Optimizer steps of each rank, fewer of which tell nothing."""
_LATENCY_S = 50e-6
_BYTES_S = 1e9
"""Of a message and of a network that nobody has measured: 50 µs, 8 Gbit/s."""
_SAME = 0.02
_OTHER_COSTS = {
    "pipeline": "whose ranks share the work on each sample",
    "local-sgd": "whose ranks exchange nothing in most steps",
    "diloco": "whose ranks exchange nothing in most steps",
    "ps-sync": "whose ranks exchange with servers and not with each other",
    "ps-async": "whose ranks exchange with servers and not with each other",
}
"""Strategies whose steps are not what this model describes, and why."""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One run's step, on the average of its ranks: seconds and counts of one step of one rank."""

    run_id: str
    strategy: str
    n_ranks: int
    n_samples: float | None
    """None: nothing told, so each step counts the same."""
    step_s: float
    data_s: float
    compute_s: float
    waiting_s: float | None
    exchange_s: float | None
    """None: not measured."""
    gradient_bytes: int | None
    crowding: float = 1.0
    """Ranks of a host for each of its CPUs; at least 1."""


class Prediction(NamedTuple):
    """Of one number of ranks and strategy."""

    n_ranks: int
    strategy: str
    efficiency: float
    error: float | None
    """By how much of the measured step a fit to the *other* sizes missed it; None where this size
    was not measured or is the only one."""
    basis: Literal["fit", "estimate"]
    """An estimate is by the fitted parameters and what ``Scaling.assumed`` says."""

    @property
    def text(self) -> str:
        """Short."""
        doubt = ", an estimate" if self.basis == "estimate" else ""
        return f"{format_percent(self.efficiency)} by {self.strategy}{doubt}"


class Scaling(msgspec.Struct, frozen=True, kw_only=True):
    """Predictions, and how far they can be trusted."""

    rows: tuple[Prediction, ...]
    measured: tuple[tuple[int, str, float], ...]
    """Ranks, strategy, efficiency that was measured beside the fitted single rank."""
    best: dict[int, str]
    """By ranks, of the strategies that train as one process does."""
    fastest: dict[int, str]
    """By ranks, of all strategies."""
    assumed: dict[str, str]
    """By strategy that is estimated."""
    cost: Cost
    notes: tuple[str, ...]

    @property
    def text(self) -> str:
        """One sentence."""
        by_size = {each.n_ranks: each.text for each in self.best_rows}
        parts = [f"{n} ranks {by_size[n]}" for n in (SIZES[1], SIZES[-1])]
        return f"efficiency predicted of {', of '.join(parts)}"

    @property
    def best_rows(self) -> list[Prediction]:
        """One for each number of ranks."""
        return [each for each in self.rows if each.strategy == self.best[each.n_ranks]]


def measured_of(state: RunState) -> Measured:
    """A run's step.

    Raises
    ------
    OptionError
        Its ranks have told too little; says what to run.
    """
    spec = state.spec
    ranks = state.ranks.get(0)
    if spec is None or not spec.verb.can.has_ranks:
        name = "it" if spec is None else f"run {spec.run_id} ({spec.verb.word})"
        raise OptionError(f"scaling(): {name} is no training on ranks; `%%distribute ddp` is")
    _check_strategy(spec)
    timed = {} if ranks is None else ranks.steps
    n_ranks = 0 if ranks is None else len(ranks.started)
    n_steps = min((each.n_steps for each in timed.values()), default=0)
    if ranks is None or len(timed) < max(1, n_ranks) or n_steps < MIN_STEPS:
        raise OptionError(
            f"scaling(): {len(timed)} of {format_counted(n_ranks, 'rank')} of run {spec.run_id} "
            f"have told of {n_steps} optimizer steps, expected all of at least {MIN_STEPS}; run "
            f"the cell with more steps"
        )
    parts = step_parts(timed).values()
    counted = [each.n_samples / each.n_steps for each in timed.values()]
    waits = [each.waiting_s for each in parts if each.waiting_s is not None]
    exchanges = [each.exchange_s for each in parts if each.exchange_s is not None]
    return Measured(
        run_id=spec.run_id,
        strategy=spec.verb.ranks.strategy,
        n_ranks=n_ranks,
        n_samples=fmean(counted) if all(counted) else None,
        step_s=fmean(each.step_s for each in parts),
        data_s=fmean(each.data_s for each in parts),
        compute_s=fmean(each.compute_s for each in parts),
        waiting_s=fmean(waits) if waits else None,
        exchange_s=fmean(exchanges) if exchanges else None,
        gradient_bytes=max(each.gradient_bytes or 0 for each in timed.values()) or None,
        crowding=_crowding(
            [(ranks.started[rank].host, each.n_cpus) for rank, each in timed.items()],
            any(one.device != "cpu" for one in ranks.started.values()),
        ),
    )


def _check_strategy(spec: RunSpec) -> None:
    ranks = spec.verb.ranks
    why = _OTHER_COSTS.get(ranks.strategy)
    if "tp_plan" in ranks.strategy_options:
        why = "with layers cut over tp, whose ranks share the work on each sample"
    if why is not None:
        raise OptionError(
            f"scaling(): run {spec.run_id} trains by --strategy {ranks.strategy}, {why}; expected "
            f"a run by ddp, or by fsdp without tp"
        )


def _crowding(places: Sequence[tuple[str, int]], on_gpus: bool) -> float:
    hosts = [host for host, _ in places]
    crowds = [hosts.count(host) / n_cpus for host, n_cpus in places if n_cpus]
    return 1.0 if on_gpus else max(1.0, max(crowds, default=1.0))


def scaling_of(runs: Sequence[Measured]) -> Scaling:
    """Predict from runs of one program.

    Parameters
    ----------
    runs
        At least one; several of one size and strategy are averaged.
    """
    known = _by_size(runs)
    cost = fit_cost(known)
    fitted = list(dict.fromkeys([*(each.strategy for each in known), "ddp", "fsdp"]))
    errors = {(each.n_ranks, each.strategy): _error(each, known) for each in known}
    sizes = sorted({*SIZES, *(each.n_ranks for each in known if each.n_ranks > 1)})
    rows = tuple(
        Prediction(
            size,
            strategy,
            cost.efficiency(size, strategy),
            errors.get((size, strategy)),
            "fit" if strategy in fitted else "estimate",
        )
        for size in sizes
        for strategy in (*fitted, *ESTIMATED)
    )
    alike = [each for each in rows if each.strategy not in OTHER_TRAININGS]
    alone_s = cost.seconds(1, "ddp")
    found = tuple(
        (
            each.n_ranks,
            each.strategy,
            _samples(each) / each.step_s * alone_s / cost.samples(1),
        )
        for each in known
    )
    return Scaling(
        rows=rows,
        measured=found,
        best=_most_efficient(alike),
        fastest=_most_efficient(rows),
        assumed=dict(ASSUMED),
        cost=cost,
        notes=(*cost.assumed, *_crowded(known)),
    )


def _most_efficient(rows: Iterable[Prediction]) -> dict[int, str]:
    found: dict[int, Prediction] = {}
    for row in rows:
        if row.n_ranks not in found or row.efficiency > found[row.n_ranks].efficiency:
            found[row.n_ranks] = row
    return {n_ranks: row.strategy for n_ranks, row in found.items()}


def _error(left_out: Measured, known: Sequence[Measured]) -> float | None:
    others = [each for each in known if each.n_ranks != left_out.n_ranks]
    if not others or left_out.n_ranks == 1:
        return None
    told = fit_cost(others).seconds(
        left_out.n_ranks,
        left_out.strategy,
        n_samples=_samples(left_out),
        crowding=left_out.crowding,
    )
    return abs(told / left_out.step_s - 1)


def _crowded(known: Iterable[Measured]) -> list[str]:
    return [
        f"{each.n_ranks} ranks shared CPUs ({each.crowding:.3g} each): their times are taken as "
        f"{each.crowding:.3g} times those of a CPU per rank, which is what is predicted"
        for each in known
        if each.crowding > 1
    ]


def _by_size(runs: Sequence[Measured]) -> list[Measured]:
    groups: dict[tuple[int, str], list[Measured]] = {}
    for run in runs:
        groups.setdefault((run.n_ranks, run.strategy), []).append(run)
    return [_mean(group) for _, group in sorted(groups.items())]


def _mean(group: Sequence[Measured]) -> Measured:
    if len(group) == 1:
        return group[0]
    names = ("n_samples", "step_s", "data_s", "compute_s", "waiting_s", "exchange_s", "crowding")
    means = {}
    for name in names:
        values = [value for each in group if (value := getattr(each, name)) is not None]
        means[name] = fmean(values) if values else None
    return msgspec.structs.replace(group[0], **means)


def fit_cost(runs: Sequence[Measured]) -> Cost:
    """Fit the model to runs of different sizes; what they can't tell is assumed, and said."""
    assumed: list[str] = []
    step_s, sample_s = _own_cost(runs)
    n_bytes = max((each.gradient_bytes or 0 for each in runs), default=0)
    smallest = min(runs, key=lambda each: each.n_ranks)
    sizes = sorted({each.n_ranks for each in runs})
    keeps = _keeps_whole_batch(runs)
    if len(sizes) == 1:
        assumed.append(
            f"only {format_counted(sizes[0], 'rank')} measured: each of more ranks is taken to "
            f"have as many samples in a step, and compute to grow with them"
        )
    message_s, byte_s, doubt = _exchange_cost(runs, step_s, sample_s, n_bytes or 1)
    assumed += [doubt] if doubt else []
    spreads = [
        each.waiting_s / each.crowding / largest(each.n_ranks)
        for each in runs
        if each.waiting_s is not None and each.n_ranks > 1
    ]
    return Cost(
        n_samples=_samples(smallest),
        n_ranks=smallest.n_ranks,
        keeps_whole_batch=keeps,
        step_s=step_s,
        sample_s=sample_s,
        message_s=message_s,
        byte_s=byte_s,
        n_bytes=n_bytes or 1,
        straggling_s=fmean(spreads) if spreads else 0.0,
        assumed=tuple(assumed),
    )


def _samples(run: Measured) -> float:
    return 1.0 if run.n_samples is None else run.n_samples


def _keeps_whole_batch(runs: Sequence[Measured]) -> bool:
    each, whole = [_samples(run) for run in runs], [_samples(run) * run.n_ranks for run in runs]
    return max(each) > (1 + _SAME) * min(each) and max(whole) <= (1 + _SAME) * min(whole)


def _own_cost(runs: Sequence[Measured]) -> tuple[float, float]:
    """Seconds of a step, and of each sample, that a rank needs for itself."""
    sure = [run for run in runs if run.exchange_s is not None or run.n_ranks == 1] or list(runs)
    own_s = [_own_s(run) / run.crowding for run in sure]
    if max(map(_samples, sure)) <= (1 + _SAME) * min(map(_samples, sure)):
        return 0.0, fmean(s / _samples(run) for s, run in zip(own_s, sure, strict=True))
    rows = [(1.0, _samples(run), s) for s, run in zip(own_s, sure, strict=True)]
    return _least_squares(rows)


def _own_s(run: Measured) -> float:
    # Alone, what DDP does to its gradients is part of the work.
    return run.step_s if run.n_ranks == 1 else run.data_s + run.compute_s


def _exchange_cost(
    runs: Sequence[Measured], step_s: float, sample_s: float, n_bytes: int
) -> tuple[float, float, str]:
    """Seconds of a message and of a byte, and what is assumed."""
    rows = []
    for run in runs:
        if run.n_ranks == 1:
            continue
        spent_s = run.exchange_s
        if spent_s is None:  # what is more than a rank needs for itself
            own_s = (step_s + sample_s * _samples(run)) * run.crowding
            spent_s = max(0.0, run.step_s - own_s)
        n_messages, share = traffic(run.strategy, run.n_ranks)
        rows.append((n_messages, share * n_bytes, spent_s / run.crowding))
    if not rows:
        message = f"{_micros(_LATENCY_S)} a message and {format_bytes(int(_BYTES_S))}/s"
        return _LATENCY_S, 1 / _BYTES_S, f"nothing was exchanged yet: {message} are assumed"
    if len({row[0] for row in rows}) > 1:
        return *_least_squares(rows), ""
    n_messages, bytes_sent, spent_s = rows[0][0], rows[0][1], fmean(row[2] for row in rows)
    # One size can't tell one from the other.
    message_s = min(_LATENCY_S, spent_s / n_messages / 2)
    text = f"a message is taken to need {_micros(message_s)}, the rest to be its bytes"
    return message_s, (spent_s - n_messages * message_s) / bytes_sent, text


def _micros(seconds: float) -> str:
    return f"{seconds * 1e6:.3g} µs"


def _least_squares(rows: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    """``a x + b y = z`` with neither of ``a`` and ``b`` below 0, by relative errors."""
    scaled = [(x / z, y / z) for x, y, z in rows if z > 0]
    if not scaled:
        return 0.0, 0.0
    xx, yy = sum(x * x for x, _ in scaled), sum(y * y for _, y in scaled)
    xy = sum(x * y for x, y in scaled)
    sx, sy = sum(x for x, _ in scaled), sum(y for _, y in scaled)
    determinant = xx * yy - xy * xy
    if determinant > 1e-9 * xx * yy:
        a, b = (sx * yy - sy * xy) / determinant, (sy * xx - sx * xy) / determinant
        if a >= 0 and b >= 0:
            return a, b
    only_a, only_b = (sx / xx, 0.0), (0.0, sy / yy)
    return min(
        (only_a, only_b),
        key=lambda ab: sum((ab[0] * x + ab[1] * y - 1) ** 2 for x, y in scaled),
    )
