"""Prepared loaders and the order of samples; imports torch, for the first ``prepare(loader)``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
)

from jupyter_ddl.ranks.metrics import ReportError

__all__ = [
    "ElasticSampler",
    "PreparedLoader",
    "Progress",
    "SharedBatches",
    "consumed_after",
    "n_samples_of_rank",
    "order",
    "prepare_loader",
    "samples_of_rank",
    "share_of",
]


# Which samples a rank sees in which order: pure, the same on every host and every world size.
#
# An epoch is one order of all samples that follows from (seed, epoch).  Ranks consume it together
# from the front, so how far they are is one number, and a group of another size can go on from it.


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
    because a rank with fewer batches than the others would let them wait forever.
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


# Prepared loaders: each rank's share of the samples, and the place to go on from.


class ElasticSampler(Sampler):  # type: ignore[misc]  # torch is not followed
    """One rank's indices of the current epoch, from the current place on."""

    def __init__(
        self,
        dataset: Any,
        *,
        rank: int,
        world_size: int,
        batch_size: int,
        shuffle: bool,
        drop_last: bool,
        seed: int,
    ) -> None:
        self.rank = rank
        self.world_size = world_size
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.drop_last = drop_last
        self.seed = seed
        self.progress = Progress()
        self._dataset = dataset

    @property
    def n_samples(self) -> int:
        return len(self._dataset)

    def set_epoch(self, epoch: int) -> None:
        """Go to the front of an epoch; a prepared loader counts epochs by itself.

        The current epoch stays where it is, so that a resumed loop may call this too.
        """
        if epoch != self.progress.epoch:
            self.progress = Progress(epoch)

    def __len__(self) -> int:
        return n_samples_of_rank(
            self.n_samples,
            self.progress.consumed,
            self.world_size,
            self.batch_size,
            drop_last=self.drop_last,
        )

    def __iter__(self) -> Iterator[int]:
        at = self.progress
        indices = order(self.n_samples, self.seed, at.epoch, shuffle=self.shuffle)
        mine = samples_of_rank(indices, at.consumed, self.rank, self.world_size, len(self))
        return iter(mine.tolist())


class SharedBatches(Sampler):  # type: ignore[misc]  # torch is not followed
    """One rank's part of each batch of all ranks together, for loops with ``prepare_step``.

    The last batch may be short, and the parts of unequal size; no sample is given twice.  Where
    there are fewer samples than ranks, the ranks that are left over are given one of them, so that
    they take part in the step, for which it does not count (:meth:`sizes`).
    """

    def __init__(self, sampler: ElasticSampler) -> None:
        self._sampler = sampler

    def __len__(self) -> int:
        left = self._n_left(self._sampler.progress.consumed)
        size = self._sampler.batch_size
        return left // size if self._sampler.drop_last else -(-left // size)

    def __iter__(self) -> Iterator[list[int]]:
        sampler, at = self._sampler, self._sampler.progress
        indices = order(sampler.n_samples, sampler.seed, at.epoch, shuffle=sampler.shuffle)
        for number in range(len(self)):
            start = at.consumed + number * sampler.batch_size
            batch = indices[start : start + sampler.batch_size]
            mine = batch[sampler.rank :: sampler.world_size].tolist()
            yield mine or batch[:1].tolist()

    def sizes(self, consumed: int, number: int) -> tuple[int, int]:
        """Samples of this rank's own in a batch, and of all ranks.

        Parameters
        ----------
        consumed : int
            Samples of the epoch before the pass.
        number : int
            Of the batch in the pass, from 1.
        """
        sampler = self._sampler
        left = self._n_left(consumed) - (number - 1) * sampler.batch_size
        n_all = min(sampler.batch_size, left)
        return len(range(sampler.rank, n_all, sampler.world_size)), n_all

    def _n_left(self, consumed: int) -> int:
        return max(0, self._sampler.n_samples - consumed)


class PreparedLoader(DataLoader):  # type: ignore[misc]  # torch is not followed
    """A ``DataLoader`` that shards, counts epochs by itself and can go on in the middle of one.

    A pass that ends, or is left after its second batch, ends its epoch.  One that is left with
    its first batch only has looked at the data and changes nothing.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        self._n_active = 0
        self._shared: SharedBatches | None = None
        self.share_at_hand: tuple[int, int] | None = None
        """Samples of this rank's own in the batch that a loop has now, and of all ranks, where
        batches are shared out."""
        self.at_hand: Any = None
        """That batch itself."""
        self.is_passed_over: Callable[[], bool] = bool
        """Whether nobody looks at the next batch: the step passes over it."""
        super().__init__(*args, **options)

    def __getstate__(self) -> dict[str, Any]:
        # Where it is brought back, there are no others.
        return {**self.__dict__, "is_passed_over": bool}

    def share_batches(self) -> None:
        """Take ``batch_size`` for that of all ranks together, from the next pass on.

        Raises
        ------
        ReportError
            A pass is under way, or there are more ranks than samples in a batch.
        """
        sampler: ElasticSampler = self.sampler
        if self._shared is not None or self.batch_size is None:
            return
        if self._n_active:
            raise ReportError(
                "prepare_step(…) was called within a loop over a prepared loader, whose batches it "
                "shares out; call it before the loop"
            )
        if self.batch_size < sampler.world_size:
            raise ReportError(
                f"with prepare_step, batch_size={self.batch_size} is the batch of all ranks "
                f"together, and there are {sampler.world_size} of them; give at least "
                f"batch_size={sampler.world_size}"
            )
        self._shared = SharedBatches(sampler)
        # torch's own attribute, which it lets nobody set by the usual way.
        object.__setattr__(self, "batch_sampler", self._shared)
        self._iterator = None  # persistent workers of an earlier pass would go on by the old one

    def __iter__(self) -> Iterator[Any]:
        sampler: ElasticSampler = self.sampler
        start = sampler.progress
        if self._n_active:  # another pass is under way: this one is not its rest
            start = Progress(start.epoch + 1)
        sampler.progress = start
        # Workers derive their seeds from it: other random transforms on every rank and epoch.
        self.generator.manual_seed(_mixed(sampler.seed, start, sampler.rank))
        passes = self.is_passed_over() and self.batch_size is not None
        batches = self._after_those_passed_over() if passes else super().__iter__()
        return self._pass(batches, sampler, start)

    def _after_those_passed_over(self) -> Iterator[Any]:
        """The batches of a pass; one that nobody looks at is the first one again, and costs nothing
        to read."""
        n_left, first = len(self), None
        while n_left and self.is_passed_over():
            if first is None:
                indices = next(iter(self.batch_sampler))
                first = self.collate_fn([self.dataset[index] for index in indices])
            n_left -= 1
            yield first
        if n_left:
            yield from DataLoader.__iter__(self)  # from where the sampler is by then

    def _pass(
        self, batches: Iterator[Any], sampler: ElasticSampler, start: Progress
    ) -> Iterator[Any]:
        end = Progress(start.epoch + 1)
        shared = self._shared
        given_before = (sampler.n_samples, start.consumed)
        sampler.progress = start  # read when the first batch is fetched, unless workers did that
        self._n_active += 1
        n_given = 0
        try:
            for batch in batches:
                n_given += 1
                n_sharing = sampler.world_size if shared is None else 1
                done = consumed_after(*given_before, n_given, n_sharing, sampler.batch_size)
                sampler.progress = Progress(start.epoch, done)
                if shared is not None:
                    self.share_at_hand = shared.sizes(start.consumed, n_given)
                    self.at_hand = batch
                yield batch
        except GeneratorExit:
            sampler.progress = start if n_given == 1 else end
            raise
        finally:
            self._n_active -= 1
            self.share_at_hand = self.at_hand = None
        sampler.progress = end


def share_of(batch: tuple[Any, ...], loaders: Sequence[PreparedLoader]) -> tuple[int, int] | None:
    """``share_at_hand`` of the loader that has given a batch; None: no loop has one of them.

    Where a loop has batches of several loaders at once, the first tensor that one of them has given
    tells; of tensors that the cell has computed from those, how many samples they have.
    """
    from jupyter_ddl.ranks.strategies.steps import tensors_of

    held = [each for each in loaders if each.share_at_hand is not None]
    if len(held) < 2:
        return held[0].share_at_hand if held else None
    origins = [{id(_origin(tensor)) for tensor in tensors_of(each.at_hand)} for each in held]
    tensors = list(tensors_of(batch))
    for tensor in tensors:
        for each, given in zip(held, origins, strict=True):
            if id(_origin(tensor)) in given:
                return each.share_at_hand
    n_samples = len(tensors[0]) if tensors and tensors[0].dim() else 0
    shares = [each.share_at_hand or (0, 0) for each in held]
    return next((share for share in shares if max(1, share[0]) == n_samples), shares[0])


def _origin(tensor: Any) -> Any:
    """What a tensor is a view of, or itself."""
    return tensor if tensor._base is None else tensor._base


def prepare_loader(loader: Any, *, rank: int, world_size: int, seed: int) -> Any:
    """Make a loader of which every rank gets its share.

    ``batch_size`` stays each rank's own, as with torch's ``DistributedSampler``, until
    :meth:`PreparedLoader.share_batches`.

    Raises
    ------
    ReportError
        The loader has a dataset or sampler that cannot be shared out, and there is more than one
        rank (on a single one such a loader comes back as it is).
    """
    if isinstance(loader, PreparedLoader):
        return loader
    reason = _refusal(loader)
    if reason is not None:
        if world_size == 1:
            return loader
        raise ReportError(
            f"prepare(loader) got {reason}, which can't be split among {world_size} ranks; split "
            "it by rank() and world_size() in the cell, and don't prepare it"
        )
    given = loader.sampler
    shuffle = isinstance(given, RandomSampler) or getattr(given, "shuffle", False)
    if isinstance(given, DistributedSampler):
        seed = given.seed
    sampler = ElasticSampler(
        loader.dataset,
        rank=rank,
        world_size=world_size,
        batch_size=loader.batch_size or 1,
        shuffle=shuffle,
        drop_last=loader.drop_last,
        seed=seed,
    )
    return PreparedLoader(
        loader.dataset,
        batch_size=loader.batch_size,
        sampler=sampler,
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        drop_last=loader.drop_last,
        timeout=loader.timeout,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        generator=torch.Generator(),
        prefetch_factor=loader.prefetch_factor,
        persistent_workers=loader.persistent_workers,
        in_order=getattr(loader, "in_order", True),
    )


def _refusal(loader: Any) -> str | None:
    if isinstance(loader.dataset, IterableDataset):
        return f"an iterable dataset ({type(loader.dataset).__name__})"
    if loader.batch_sampler is not None and type(loader.batch_sampler) is not BatchSampler:
        return f"a batch sampler of its own ({type(loader.batch_sampler).__name__})"
    sampler = loader.sampler
    known = type(sampler) in (RandomSampler, SequentialSampler, DistributedSampler)
    if not known:
        return f"a sampler of its own ({type(sampler).__name__})"
    whole = not isinstance(sampler, RandomSampler) or (
        not sampler.replacement and sampler.num_samples == len(loader.dataset)
    )
    return None if whole else "a RandomSampler that draws with replacement or a part only"


def _mixed(seed: int, at: Progress, rank: int) -> int:
    import numpy

    words = numpy.random.SeedSequence((seed, at.epoch, at.consumed, rank)).generate_state(2)
    return int(words[0]) << 31 ^ int(words[1])
