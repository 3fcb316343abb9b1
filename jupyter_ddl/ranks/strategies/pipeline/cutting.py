"""Where a model is cut into the stages of a pipeline.

A model that is a chain (an ``nn.Sequential``, or any module whose ``forward`` calls its children in
the order in which it holds them) is a row of *parts*.  A stage is a run of neighbouring parts; the
cut makes the slowest stage as fast as it can be.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from jupyter_ddl.nearest import did_you_mean
from jupyter_ddl.ranks.metrics import ReportError

__all__ = [
    "Part",
    "balanced",
    "balanced_within",
    "chained",
    "check_cut",
    "fitting",
    "kept",
    "measured",
    "parts_of",
    "starts_named",
]

_WIDER = 1.25
"""By what limits are widened that no cut keeps."""
_N_PASSES = 3
"""The fastest of so many passes counts: the first one also pays for what is done once."""


@dataclass(frozen=True)
class Part:
    """A piece that is never cut: its name within the model, and the module."""

    name: str
    module: Any

    @property
    def n_bytes(self) -> int:
        """Size of its parameters and buffers."""
        tensors = (*self.module.parameters(), *self.module.buffers())
        return sum(each.numel() * each.element_size() for each in tensors)


def parts_of(model: Any) -> tuple[Part, ...]:
    """Return a chain's parts in order; what only holds others is replaced by what it holds.

    Raises
    ------
    ReportError
        The model has no children.
    """
    parts = tuple(_parts(model, ""))
    if not parts:
        raise ReportError(
            f"--strategy pipeline cuts a model between its children, and {type(model).__name__} "
            f"has none; write it as torch.nn.Sequential(…)"
        )
    return parts


def _parts(holder: Any, prefix: str) -> Iterator[Part]:
    import torch

    for name, child in holder.named_children():
        # A subclass of Sequential may have a forward of its own.
        if type(child) in (torch.nn.Sequential, torch.nn.ModuleList) and len(child):
            yield from _parts(child, f"{prefix}{name}.")
        else:
            yield Part(f"{prefix}{name}", child)


def chained(parts: Sequence[Part], value: Any) -> Iterator[Any]:
    """Yield what goes from each part to the next, and what the last one returns.

    Raises
    ------
    ReportError
        It is no tensor.
    """
    import torch

    for part in parts:
        value = part.module(value)
        if not isinstance(value, torch.Tensor):
            raise ReportError(
                f"--strategy pipeline sends tensors from stage to stage, and {part.name!r} "
                f"({type(part.module).__name__}) returned a {type(value).__name__}; have it return "
                f"one tensor, or train with --strategy ddp"
            )
        yield value


def measured(parts: Sequence[Part], x: Any) -> tuple[float, ...]:
    """Time a forward pass of each part on one micro-batch.

    A backward pass costs about twice as much everywhere, so it does not move the cut.

    Returns
    -------
    tuple of float
        Seconds, one for each part.
    """
    best = [float("inf")] * len(parts)
    for _ in range(_N_PASSES):
        began_s = time.perf_counter()
        for number, value in enumerate(chained(parts, x)):
            if value.is_cuda:
                value.sum().item()  # waits until it is there
            now_s = time.perf_counter()
            best[number] = min(best[number], now_s - began_s)
            began_s = now_s
    return tuple(best)


def kept(parts: Sequence[Part], x: Any) -> tuple[int, ...]:
    """Return the bytes that each part keeps for the backward pass of one micro-batch.

    Parameters are not counted: they are there once, however many micro-batches are.
    """
    import torch

    known = {each.data_ptr() for part in parts for each in part.module.parameters()}
    found: dict[int, int] = {}

    def note(tensor: Any) -> Any:
        if tensor.data_ptr() not in known:
            found[tensor.data_ptr()] = tensor.nbytes
        return tensor

    sums = []
    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(note, lambda each: each):
        for part in parts:
            found.clear()
            given = x.detach()
            # No leaf of the graph, which a part could not change in place.
            x = part.module(given.requires_grad_().clone() if given.is_floating_point() else given)
            sums.append(sum(found.values()))
    return tuple(sums)


def balanced(costs: Sequence[float], n_stages: int) -> tuple[int, ...]:
    """Cut a row of costs into neighbouring groups so that the dearest group is cheapest.

    Returns
    -------
    tuple of int
        Where each group starts; the first one is 0.

    Raises
    ------
    ValueError
        There are fewer costs than groups.
    """
    if not 1 <= n_stages <= len(costs):
        raise ValueError(f"{len(costs)} costs can't be cut into {n_stages} groups")
    cut = balanced_within(costs, [0] * len(costs), [0.0] * n_stages)
    assert cut is not None
    return cut


def balanced_within(
    costs: Sequence[float], sizes: Sequence[int], limits: Sequence[float]
) -> tuple[int, ...] | None:
    """As :func:`balanced`, among the cuts with which no group is too large.

    Parameters
    ----------
    sizes : sequence of int
        One for each cost.
    limits : sequence of float
        One for each group: what the sizes in it may come to.

    Returns
    -------
    tuple of int or None
        None: there is no such cut.
    """
    n_costs, n_stages = len(costs), len(limits)
    sums = list(itertools.accumulate(costs, initial=0.0))
    size_sums = list(itertools.accumulate(sizes, initial=0))

    def fits(group: int, start: int, end: int) -> bool:
        return size_sums[end] - size_sums[start] <= limits[group]

    # dearest[k][i]: of the best cut of the first i costs into k + 1 groups; last[k][i]: where its
    # last group starts.
    dearest = [[cost if fits(0, 0, end) else math.inf for end, cost in enumerate(sums)]]
    last = [[0] * (n_costs + 1)]
    for n_groups in range(2, n_stages + 1):
        row, starts = [math.inf] * (n_costs + 1), [0] * (n_costs + 1)
        for end in range(n_groups, n_costs + 1):
            for start in range(n_groups - 1, end):
                worst = max(dearest[-1][start], sums[end] - sums[start])
                if worst < row[end] and fits(n_groups - 1, start, end):
                    row[end], starts[end] = worst, start
        dearest.append(row)
        last.append(starts)
    if dearest[-1][n_costs] == math.inf:
        return None
    cut, end = [], n_costs
    for starts in reversed(last):
        end = starts[end]
        cut.append(end)
    return tuple(reversed(cut))


def fitting(
    costs: Sequence[float], sizes: Sequence[int], limits: Sequence[float]
) -> tuple[int, ...]:
    """As :func:`balanced_within`; where no cut keeps the limits, one that nearly does."""
    limits = [max(1.0, each) for each in limits]
    while (cut := balanced_within(costs, sizes, limits)) is None:
        limits = [_WIDER * each for each in limits]
    return cut


def starts_named(parts: Sequence[Part], names: Sequence[str], n_stages: int) -> tuple[int, ...]:
    """Return where stages start that ``--split`` names by the part, or holder, they begin with.

    Raises
    ------
    ReportError
        A name is no part, they are not in order, or they make another number of stages.
    """
    known = [part.name for part in parts]
    starts = [0]
    for name in names:
        at = next((n for n, each in enumerate(known) if f"{each}.".startswith(f"{name}.")), None)
        if at is None:
            raise ReportError(
                f"--split names {name!r}, which is no part of the model; "
                f"expected some of {_listed(known)}{did_you_mean(name, known)}"
            )
        if at <= starts[-1]:
            raise ReportError(
                f"--split {','.join(names)}: {name!r} does not come after what starts before it; "
                f"expected names in the model's order, without its first part: {_listed(known)}"
            )
        starts.append(at)
    if len(starts) != n_stages:
        raise ReportError(
            f"--split {','.join(names)} makes {len(starts)} stages; expected {n_stages}, which "
            f"{n_stages - 1} names make"
        )
    return tuple(starts)


def check_cut(parts: Sequence[Part], starts: Sequence[int]) -> None:
    """Refuse a parameter that two stages share: each would train a copy of its own.

    Raises
    ------
    ReportError
        There is one; the message names both places.
    """
    owners: dict[int, tuple[int, str]] = {}
    for number, part in enumerate(parts):
        stage = sum(start <= number for start in starts) - 1
        for name, parameter in part.module.named_parameters(remove_duplicate=False):
            whole = f"{part.name}.{name}" if name else part.name
            first_stage, first = owners.setdefault(id(parameter), (stage, whole))
            if first_stage != stage:
                raise ReportError(
                    f"--strategy pipeline cuts between {first!r} and {whole!r}, which are one "
                    f"parameter (tied weights); untie them, keep them in one stage with --split, "
                    f"or train with --strategy fsdp"
                )


def is_chain(model: Any, parts: Sequence[Part], x: Any) -> bool:
    """Whether calling the parts one after another gives what the model gives."""
    import torch

    expected = model(x)
    *_, value = chained(parts, x)
    return (
        isinstance(expected, torch.Tensor)
        and expected.shape == value.shape
        and bool(torch.allclose(expected, value, equal_nan=True))
    )


def _listed(names: Sequence[str], n_shown: int = 12) -> str:
    more = f" … ({len(names)} in all)" if len(names) > n_shown else ""
    return f"{', '.join(names[:n_shown])}{more}"
