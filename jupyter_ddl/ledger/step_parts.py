"""What a group's steps are made of, and one sentence about what they wait for.  Pure.

Ranks begin an exchange of gradients when they are ready and end it together.  So who waits least in
it is waited for: what the others take beyond that is waiting, and the rest is the exchange itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean, median

from jupyter_ddl.formats import format_counted, format_duration, format_percent, format_score
from jupyter_ddl.protocol.events import StepsTimed
from jupyter_ddl.protocol.pipeline import PipelineTimes
from jupyter_ddl.protocol.snapshot import StepParts

__all__ = [
    "bytes_per_step",
    "hidden_share",
    "pipeline_verdict",
    "step_parts",
    "step_verdict",
    "trial_steps_text",
]

_MIN_STEPS = 5
_SLOWER = 1.2
"""A rank is slow that takes so much longer than the others for its own part."""
_WAITING, _DATA, _EXCHANGE = 0.1, 0.15, 0.2
"""Shares of a step that are worth a sentence."""
_APART = 0.05
_UNEVEN, _BUBBLE = 0.15, 0.25
"""Shares of a pipeline's batch: idle beyond the ideal, and the ideal itself."""

_WHOLE_COPIES = ", or --strategy ddp if each rank has room for the whole model"
_REMEDIES = {
    "ddp": ", or model.no_sync() while gradients of several batches add up",
    "fsdp": _WHOLE_COPIES,
}
_STEP_REMEDIES = {
    "ddp": " (with accumulate=… if memory is short), or --compress bf16",
    "fsdp": f" (with accumulate=… if memory is short){_WHOLE_COPIES}",
    "local-sgd": ", or a larger --sync-every",
    "diloco": ", or a larger --sync-every",
    "ps-sync": ", or more --servers, or --compress fp16",
    "ps-async": ", or more --servers, or --compress fp16",
}
"""Beside larger batches, what lets ranks exchange less often, or less."""


def step_parts(timed: Mapping[int, StepsTimed]) -> dict[int, StepParts]:
    """By rank: seconds of a step, on the average of its round so far."""
    enough = {rank: each for rank, each in timed.items() if each.n_steps and each.step_s > 0}
    exchanges = [
        each.exchange_s / each.n_steps for each in enough.values() if each.exchange_s is not None
    ]
    least_s = min(exchanges, default=0.0)
    return {rank: _parts(each, least_s) for rank, each in sorted(enough.items())}


def bytes_per_step(timed: StepsTimed | None) -> float | None:
    """Payload that a rank sends, on the average of its round so far; None: not counted."""
    if timed is None or timed.bytes_sent is None or not timed.n_updates:
        return None
    return timed.bytes_sent / timed.n_updates


def hidden_share(timed: Mapping[int, StepsTimed]) -> float | None:
    """Of the time in which gradients are on their way, what backward passes hide; mean of ranks."""
    known = [each.hidden_share for each in timed.values() if each.hidden_share is not None]
    return mean(known) if known else None


def _parts(each: StepsTimed, least_s: float) -> StepParts:
    n = each.n_steps
    step_s, data_s = each.step_s / n, each.data_s / n
    exchange_s = None if each.exchange_s is None else min(least_s, each.exchange_s / n)
    waiting_s = None if each.exchange_s is None else max(0.0, each.exchange_s / n - least_s)
    return StepParts(
        n_steps=n,
        step_s=step_s,
        data_s=data_s,
        waiting_s=waiting_s,
        exchange_s=exchange_s,
        compute_s=max(0.0, step_s - data_s - (waiting_s or 0.0) - (exchange_s or 0.0)),
        samples_s=each.n_samples / each.step_s if each.n_samples else None,
        n_workers=each.n_workers,
        gradient_norm=each.gradient_norm,
    )


def step_verdict(
    parts: Mapping[int, StepParts],
    hosts: Mapping[int, str],
    strategy: str = "ddp",
    *,
    makes_steps: bool = False,
    hidden: float | None = None,
) -> str:
    """What costs most of a step, by whom, and what to try; empty: too early to tell.

    Parameters
    ----------
    hosts
        Of all ranks: a sentence about some of them would blame the wrong one.
    makes_steps
        Whether the cell calls ``prepare_step``, and has no wrapped model.
    hidden
        What :func:`hidden_share` says.
    """
    if not parts or parts.keys() != hosts.keys():
        return ""
    if min(each.n_steps for each in parts.values()) < _MIN_STEPS:
        return ""
    each = list(parts.values())
    data = mean(one.data_s / one.step_s for one in each)
    exchange = mean((one.exchange_s or 0.0) / one.step_s for one in each)
    slowest = _slowest(parts)
    waiting = 0.0 if slowest is None else _waiting(parts, slowest)
    if slowest is not None and waiting >= max(_WAITING, data, exchange):
        return _slow_text(parts, slowest, waiting, hosts.get(slowest, ""))
    if data >= max(_DATA, exchange):
        return _data_text(parts, data)
    if exchange >= _EXCHANGE:
        what = "parameters and gradients" if strategy == "fsdp" else "gradients"
        more = (_STEP_REMEDIES if makes_steps else _REMEDIES).get(strategy, "")
        hides = "" if hidden is None else f", and {_hidden_text(hidden)}"
        return (
            f"{format_percent(exchange)} of a step exchanges {what}{hides}: try a larger "
            f"batch_size{more}"
        )
    step_s = mean(one.step_s for one in each)
    compute = mean(one.compute_s / one.step_s for one in each)
    hides = "" if hidden is None or hidden < _APART else f"; {_hidden_text(hidden)}"
    return f"{format_percent(compute)} of a step of {format_duration(step_s)} is compute{hides}"


def trial_steps_text(timed: Mapping[int, StepsTimed], strategy: str = "ddp") -> str:
    """What the steps of a trial are made of, and how fast they are; empty: too few are known."""
    parts = step_parts(timed)
    verdict = step_verdict(parts, dict.fromkeys(parts, ""), strategy)
    samples_s = sum(each.samples_s or 0.0 for each in parts.values())
    return f"{verdict}; {format_score(samples_s)} samples/s" if verdict and samples_s else verdict


def _hidden_text(share: float) -> str:
    return f"the backward pass hides {format_percent(share)} of the exchange"


def pipeline_verdict(times: PipelineTimes) -> str:
    """How long the ranks of a pipeline have nothing to do in a batch, and what to try."""
    cut = format_counted(times.n_microbatches, "micro-batch", "micro-batches")
    begin = (
        f"the ranks are idle for {format_percent(times.idle_share)} of a batch; {times.schedule} "
        f"with {cut} leaves at best {format_percent(times.ideal_idle_share)}"
    )
    if times.idle_share - times.ideal_idle_share >= _UNEVEN:
        return f"{begin}: larger micro-batches, or --split where stages take equally long"
    if times.ideal_idle_share >= _BUBBLE:
        return f"{begin}: try --microbatches {4 * times.n_ranks}"
    return begin


def _own_s(parts: StepParts) -> float:
    return parts.data_s + parts.compute_s


def _slowest(parts: Mapping[int, StepParts]) -> int | None:
    if len(parts) < 2:
        return None
    rank = max(parts, key=lambda each: _own_s(parts[each]))
    others = median(_own_s(each) for other, each in parts.items() if other != rank)
    return rank if _own_s(parts[rank]) >= _SLOWER * others else None


def _waiting(parts: Mapping[int, StepParts], slowest: int) -> float:
    return mean((p.waiting_s or 0.0) / p.step_s for rank, p in parts.items() if rank != slowest)


def _slow_text(parts: Mapping[int, StepParts], slowest: int, waiting: float, host: str) -> str:
    its = parts[slowest]
    others = [each for rank, each in parts.items() if rank != slowest]
    data_s = median(each.data_s for each in others)
    compute_s = median(each.compute_s for each in others)
    begin = f"rank {slowest} is slowest: the others wait {format_percent(waiting)} of a step for it"
    if its.data_s - data_s > its.compute_s - compute_s:
        return (
            f"{begin}; it waits {format_duration(its.data_s)} for data, they "
            f"{format_duration(data_s)}: {_loader_advice([its])}"
        )
    where = f" on {host}" if host else ""
    return (
        f"{begin}; it computes for {format_duration(its.compute_s)}, they for "
        f"{format_duration(compute_s)}: look at what else runs{where}, or share the work out evenly"
    )


def _data_text(parts: Mapping[int, StepParts], data: float) -> str:
    worst = max(parts, key=lambda rank: parts[rank].data_s / parts[rank].step_s)
    share = parts[worst].data_s / parts[worst].step_s
    who = ""
    if share - data >= _APART:
        who = f"; rank {worst} is slowest ({format_percent(share)})"
    advice = _loader_advice(list(parts.values()))
    return f"{format_percent(data)} of a step waits for data{who}: {advice}"


def _loader_advice(parts: Sequence[StepParts]) -> str:
    known = [each.n_workers for each in parts if each.n_workers is not None]
    n_workers = max(known, default=0)
    more = 2 * n_workers or 2
    return f"try num_workers={more}" + (" or a cheaper transform" if n_workers else "")
