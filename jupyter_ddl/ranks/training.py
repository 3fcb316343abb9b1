"""What an attempt has prepared: models, optimizers and loaders; their state in checkpoints."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator, Mapping
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

from jupyter_ddl.plugins import STRATEGIES
from jupyter_ddl.protocol.group import RankPlace
from jupyter_ddl.ranks.metrics import ReportError
from jupyter_ddl.ranks.strategies.base import Strategy
from jupyter_ddl.ranks.strategies.sharded import gathered, is_sharded

__all__ = [
    "PRIVATE_KEY",
    "ElasticSampler",
    "PreparedLoader",
    "Progress",
    "Training",
    "consumed_after",
    "n_samples_of_rank",
    "order",
    "prepare_loader",
    "prepare_plainly",
    "samples_of_rank",
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


# Prepared loaders: each rank's share of the samples, and the place to go on from.
#
# Imports torch; loaded by the first ``prepare(loader)``.


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


class PreparedLoader(DataLoader):  # type: ignore[misc]  # torch is not followed
    """A ``DataLoader`` that shards, counts epochs by itself and can go on in the middle of one.

    A pass that ends, or is left after its second batch, ends its epoch.  One that is left with
    its first batch only has looked at the data and changes nothing.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        self._n_active = 0
        super().__init__(*args, **options)

    def __iter__(self) -> Iterator[Any]:
        sampler: ElasticSampler = self.sampler
        start = sampler.progress
        if self._n_active:  # another pass is under way: this one is not its rest
            start = Progress(start.epoch + 1)
        sampler.progress = start
        # Workers derive their seeds from it: other random transforms on every rank and epoch.
        self.generator.manual_seed(_mixed(sampler.seed, start, sampler.rank))
        return self._pass(super().__iter__(), sampler, start)

    def _pass(
        self, batches: Iterator[Any], sampler: ElasticSampler, start: Progress
    ) -> Iterator[Any]:
        end = Progress(start.epoch + 1)
        given_before = (sampler.n_samples, start.consumed)
        sampler.progress = start  # read when the first batch is fetched, unless workers did that
        self._n_active += 1
        n_given = 0
        try:
            for batch in batches:
                n_given += 1
                done = consumed_after(
                    *given_before, n_given, sampler.world_size, sampler.batch_size
                )
                sampler.progress = Progress(start.epoch, done)
                yield batch
        except GeneratorExit:
            sampler.progress = start if n_given == 1 else end
            raise
        finally:
            self._n_active -= 1
        sampler.progress = end


def prepare_loader(loader: Any, *, rank: int, world_size: int, seed: int) -> Any:
    """Make a loader of which every rank gets its share.

    ``batch_size`` stays each rank's own, as with torch's ``DistributedSampler``.

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
            f"prepare(loader) got {reason}, which can't be shared out among {world_size} ranks; "
            f"share it out by rank() and world_size() in the cell, and don't prepare it"
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


PRIVATE_KEY = "_jupyter_ddl"
"""Under this name a checkpoint holds what ``resume`` gives back to prepared loaders."""


class Training:
    """Used on the rank's main thread.

    Parameters
    ----------
    place : RankPlace or None
        None: this process trains alone.
    seed : int
        Of the order of samples; equal on all ranks and in all attempts.
    """

    def __init__(self, place: RankPlace | None, seed: int) -> None:
        self._place = place
        self._seed = seed
        self._strategy: Strategy | None = None
        self._loaders: list[Any] = []
        self._restored: list[Mapping[str, int]] = []
        self._optimizers: weakref.WeakSet[Any] = weakref.WeakSet()

    @property
    def strategy(self) -> Strategy | None:
        """The group's strategy; None for a process that trains alone."""
        if self._strategy is None and self._place is not None:
            self._strategy = STRATEGIES.load(self._place.strategy)()
        return self._strategy

    def prepare(self, objects: tuple[Any, ...], device: Any) -> tuple[Any, ...]:
        """See :func:`jupyter_ddl.ranks.incell.prepare`."""
        torch: Any = sys.modules["torch"]
        ready = []
        for each in objects:
            if isinstance(each, torch.nn.Module):
                ready.append(self._model(each, device))
            elif isinstance(each, torch.utils.data.DataLoader):
                ready.append(self._loader(each))
            else:
                if isinstance(each, torch.optim.Optimizer):
                    self._optimizers.add(each)
                ready.append(each)
        # At the end, so that in one call the order of models and optimizers is free.
        if self.strategy is not None:
            for optimizer in self._optimizers:
                self.strategy.adapt(optimizer)
        return tuple(ready)

    def _model(self, model: Any, device: Any) -> Any:
        return model.to(device) if self.strategy is None else self.strategy.wrap(model, device)

    def _loader(self, loader: Any) -> Any:

        place = self._place
        prepared = prepare_loader(
            loader,
            rank=place.rank if place else 0,
            world_size=place.world_size if place else 1,
            seed=self._seed,
        )
        if isinstance(prepared, PreparedLoader) and prepared is not loader:
            self._loaders.append(prepared)
            self._give_back(len(self._loaders) - 1)
        return prepared

    # -- checkpoints ----------------------------------------------------------------------------

    def is_collective(self, state: Mapping[str, Any]) -> bool:
        """Whether saving this state needs all ranks."""
        return "torch" in sys.modules and is_sharded(state)

    def plain_state(self, state: Mapping[str, Any], *, keep: bool) -> dict[str, Any]:
        """State as one process without a strategy would have it, with that of loaders.

        Collective if :meth:`is_collective`; only ranks with ``keep`` get a result to use.
        """
        plain: dict[str, Any] = {name: self._plain(value) for name, value in state.items()}
        if "torch" in sys.modules:
            plain = gathered(plain, keep=keep)
        if self._loaders:
            plain[PRIVATE_KEY] = {"loaders": [_state_of(loader) for loader in self._loaders]}
        return plain

    def _plain(self, value: Any) -> Any:
        torch: Any = sys.modules.get("torch")
        if torch is not None and isinstance(value, torch.nn.Module | torch.optim.Optimizer):
            strategy = self.strategy
            return value.state_dict() if strategy is None else strategy.state(value)
        if type(value) is dict:
            return {name: self._plain(item) for name, item in value.items()}
        if type(value) in (list, tuple):
            return type(value)(self._plain(item) for item in value)
        return value

    def restore(self, state: dict[str, Any]) -> dict[str, Any]:
        """Give loaders back where they were, those included that are prepared later."""
        private = state.pop(PRIVATE_KEY, None)
        if isinstance(private, dict):
            self._restored = list(private.get("loaders", ()))
            for number in range(len(self._loaders)):
                self._give_back(number)
        if self._place is not None and "torch" in sys.modules:
            from jupyter_ddl.ranks.strategies.data_parallel import accept_plain_state

            accept_plain_state()
        return state

    def _give_back(self, number: int) -> None:

        if number >= len(self._restored):
            return
        saved = self._restored[number]
        sampler = self._loaders[number].sampler
        if saved["n_samples"] != sampler.n_samples:
            raise ReportError(
                f"the checkpoint was written while loader {number} had {saved['n_samples']} "
                f"samples, now it has {sampler.n_samples}; prepare loaders in the same order over "
                f"the same data, or start anew without resume()"
            )
        sampler.progress = Progress(saved["epoch"], saved["consumed"])

    # -- values ---------------------------------------------------------------------------------

    def unwrapped(self, value: Any) -> Any:
        """A value as the notebook can use it: plain modules, whole tensors, also in containers.

        Collective if something in it is sharded.
        """
        torch: Any = sys.modules.get("torch")
        if torch is None:
            return value
        if isinstance(value, torch.nn.Module):
            return self._plain_module(value)
        if type(value) is dict:
            return {name: self.unwrapped(item) for name, item in value.items()}
        if type(value) in (list, tuple):
            return type(value)(self.unwrapped(item) for item in value)
        return gathered(value, keep=True) if isinstance(value, torch.Tensor) else value

    def _plain_module(self, model: Any) -> Any:
        from jupyter_ddl.ranks.strategies.data_parallel import DataParallel

        if is_sharded(model):
            # Also of a model that the cell has sharded by itself.
            from jupyter_ddl.ranks.strategies.fully_sharded import FullySharded

            return FullySharded().unwrap(model)
        model = DataParallel().unwrap(model)
        return model if self.strategy is None else self.strategy.unwrap(model)


def prepare_plainly(objects: tuple[Any, ...], device: Any) -> tuple[Any, ...]:
    """Prepare in plain execution: the same objects as a run of one rank would have."""
    torch: Any = sys.modules["torch"]
    return Training(None, torch.initial_seed()).prepare(objects, device)


def _state_of(loader: Any) -> dict[str, int]:
    sampler = loader.sampler
    at = sampler.progress
    return {"epoch": at.epoch, "consumed": at.consumed, "n_samples": sampler.n_samples}
