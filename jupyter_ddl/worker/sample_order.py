"""Which samples a rank sees in which order: pure, the same on every host and every world size.

An epoch is one order of all samples that follows from (seed, epoch).  Ranks consume it together
from the front, so how far they are is one number, and a group of another size can go on from it.
"""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["Progress", "consumed_after", "n_samples_of_rank", "order", "samples_of_rank"]


class Progress(msgspec.Struct, frozen=True):
    """How far a loader is."""

    epoch: int = 0
    consumed: int = 0
    """Samples of the epoch that all ranks together have been given."""


def order(n_samples: int, seed: int, epoch: int, *, shuffle: bool) -> Any:
    """The indices of one epoch, in order, as a numpy array."""
    import numpy

    if not shuffle:
        return numpy.arange(n_samples)
    # Philox is specified: the order does not change with numpy's default generator.
    generator = numpy.random.Generator(numpy.random.Philox(key=seed % 2**64 << 64 | epoch))
    return generator.permutation(n_samples)


def n_samples_of_rank(
    n_samples: int, consumed: int, world_size: int, batch_size: int, *, drop_last: bool
) -> int:
    """How many samples each rank still gets in this epoch: the same number for all.

    With ``drop_last`` whole batches only; else up to ``world_size - 1`` samples are given twice,
    because a rank with fewer batches than the others would let them wait for ever.
    """
    left = max(0, n_samples - consumed)
    if drop_last:
        return left // (world_size * batch_size) * batch_size
    return -(-left // world_size)


def samples_of_rank(indices: Any, consumed: int, rank: int, world_size: int, count: int) -> Any:
    """The part of ``indices`` (one epoch's order) that a rank gets, from ``consumed`` on."""
    import numpy

    positions = consumed + rank + world_size * numpy.arange(count)
    return indices[positions % max(1, len(indices))]


def consumed_after(
    n_samples: int, consumed: int, n_batches: int, world_size: int, batch_size: int
) -> int:
    """``consumed`` after every rank has been given ``n_batches`` more batches."""
    return min(n_samples, consumed + n_batches * world_size * batch_size)
