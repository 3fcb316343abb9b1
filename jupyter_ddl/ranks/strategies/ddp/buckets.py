"""``--tune-buckets``: how many bytes of gradients ``ddp`` sends at once, chosen by measurement.

Small buckets begin to travel early in the backward pass, large ones cost less each.  What is best
depends on model, network and ranks, so each size makes some steps, and the fastest stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from jupyter_ddl.formats import format_bytes, format_duration

__all__ = [
    "SIZES_MIB",
    "TORCH_MIB",
    "BucketTrials",
    "candidates",
    "choice_text",
    "fastest",
    "nothing_text",
]

SIZES_MIB: tuple[float, ...] = (1, 5, 25, 100)
TORCH_MIB = 25
"""What torch takes unasked (with a first bucket of 1 MiB)."""
_MIB = 2**20
_N_WARM_UP = 2
"""Steps of a size that do not count: torch puts buckets into the order of gradients after one."""
_N_TIMED = 5
_GAIN = 0.02
"""Another size than torch's own must save such a share of a step: less is noise."""


def candidates(n_bytes: int, sizes_mib: Sequence[float] = SIZES_MIB) -> tuple[float, ...]:
    """Sizes, in MiB, that cut gradients of ``n_bytes`` differently; torch's own is among them."""
    cutting = [size for size in sizes_mib if size * _MIB < n_bytes]
    if not cutting:
        return (TORCH_MIB,)
    whole = [size for size in sizes_mib if size * _MIB >= n_bytes][:1]
    return tuple(sorted({*cutting, *whole, TORCH_MIB}))


class BucketTrials:
    """Which size makes the next step, and what the steps of each size have taken.

    All sizes have their turn twice, there and back, so that a process that grows faster, or a
    machine that grows slower, favours none.

    Parameters
    ----------
    sizes_mib : sequence of float
        At least two.
    """

    def __init__(self, sizes_mib: Sequence[float]) -> None:
        self.sizes_mib = tuple(sizes_mib)
        self._turns = [*sizes_mib, *reversed(sizes_mib)]
        self._n_steps = 0
        self._times_s: dict[float, list[float]] = {size: [] for size in sizes_mib}

    @property
    def size_mib(self) -> float | None:
        """Of the next step; None: all have been measured."""
        turn = self._n_steps // (_N_WARM_UP + _N_TIMED)
        return self._turns[turn] if turn < len(self._turns) else None

    def add(self, step_s: float) -> None:
        """Take the time of a step that was made with :attr:`size_mib`."""
        size = self.size_mib
        if size is not None and self._n_steps % (_N_WARM_UP + _N_TIMED) >= _N_WARM_UP:
            self._times_s[size].append(step_s)
        self._n_steps += 1

    @property
    def medians_s(self) -> list[float]:
        """Of a step with each size, in the order of ``sizes_mib``."""
        return [median(self._times_s[size]) for size in self.sizes_mib]


def fastest(sizes_mib: Sequence[float], by_rank_s: Sequence[Sequence[float]]) -> float:
    """The size to go on with; torch's own where no other one saves enough.

    Parameters
    ----------
    by_rank_s : sequence of sequence of float
        ``medians_s`` of each rank: all ranks know those of all, and choose alike.
    """
    steps_s = dict(zip(sizes_mib, _over_ranks(by_rank_s), strict=True))
    best = min(steps_s, key=lambda size: steps_s[size])
    return best if steps_s[best] < (1 - _GAIN) * steps_s[TORCH_MIB] else TORCH_MIB


def choice_text(
    sizes_mib: Sequence[float], by_rank_s: Sequence[Sequence[float]], chosen_mib: float
) -> str:
    """One sentence for the record: the size, and what was measured."""
    measured = ", ".join(
        f"{format_duration(step_s)} with {size:g} MiB"
        for size, step_s in zip(sizes_mib, _over_ranks(by_rank_s), strict=True)
    )
    own = ", torch's own" if chosen_mib == TORCH_MIB else ""
    return (
        f"--tune-buckets: gradients go in buckets of {chosen_mib:g} MiB{own}; forward and backward "
        f"pass took {measured}"
    )


def nothing_text(n_bytes: int) -> str:
    """One sentence where there is nothing to choose."""
    return (
        f"--tune-buckets: gradients of {format_bytes(n_bytes)} fit in one bucket of every size; "
        f"there is nothing to choose"
    )


def _over_ranks(by_rank_s: Sequence[Sequence[float]]) -> list[float]:
    return [median(times) for times in zip(*by_rank_s, strict=True)]
