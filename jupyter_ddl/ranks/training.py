"""What an attempt has prepared: models, optimizers and loaders; their state in checkpoints."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Mapping
from typing import Any

from jupyter_ddl.plugins import STRATEGIES
from jupyter_ddl.protocol.group import RankPlace
from jupyter_ddl.ranks.metrics import ReportError
from jupyter_ddl.ranks.strategies.base import Strategy
from jupyter_ddl.ranks.strategies.sharded import gathered, is_sharded

__all__ = ["PRIVATE_KEY", "Training", "prepare_plainly"]

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
        from jupyter_ddl.ranks.loader import PreparedLoader, prepare_loader

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
        from jupyter_ddl.ranks.loader import Progress

        if number >= len(self._restored):
            return
        saved = self._restored[number]
        sampler = self._loaders[number].sampler
        if saved["n_samples"] != sampler.n_samples:
            raise ReportError(
                f"the checkpoint was written while loader {number} had {saved['n_samples']} "
                f"samples, now it has {sampler.n_samples}; prepare loaders in the same order over "
                f"the same data, or start over without resume()"
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
