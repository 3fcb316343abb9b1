"""What an attempt has prepared: models, optimizers and loaders; their state in checkpoints."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from jupyter_ddl.plugins import STRATEGIES
from jupyter_ddl.protocol.group import RankPlace
from jupyter_ddl.protocol.pipeline import PipelineTimes
from jupyter_ddl.protocol.staleness import Staleness
from jupyter_ddl.ranks.metrics import ReportError
from jupyter_ddl.ranks.step_times import watch_strategy
from jupyter_ddl.ranks.stopping import StopReason, TrialStopped
from jupyter_ddl.ranks.strategies.base import Strategy
from jupyter_ddl.ranks.strategies.sharded import gathered, is_sharded

__all__ = ["PRIVATE_KEY", "Training", "prepare_plainly", "prepare_step_plainly"]

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
    strategy : Strategy, optional
        By default the one that ``place`` names.
    tell : callable, optional
        Where a strategy's sentences and measurements go.
    store : torch.distributed.Store, optional
        Of the group's round.
    settled : callable, optional
        Called on rank 0 once all ranks have met and made ready for steps.
    """

    def __init__(
        self,
        place: RankPlace | None,
        seed: int,
        strategy: Strategy | None = None,
        tell: Callable[[str | PipelineTimes | Staleness], None] | None = None,
        store: Any = None,
        settled: Callable[[], None] | None = None,
    ) -> None:
        self._settled = settled
        self._store = store
        self._place = place
        self._seed = seed
        self._strategy = strategy
        self._tell = tell
        self._loaders: list[Any] = []
        self._restored: list[Mapping[str, int]] = []
        self._steps: list[weakref.ref[Any]] = []
        self._restored_scales: list[Mapping[str, float] | None] = []
        self._optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._shares_batches = False

    @property
    def strategy(self) -> Strategy | None:
        """The group's strategy; None for a process that trains alone."""
        if self._strategy is None and self._place is not None:
            chosen = STRATEGIES.load(self._place.strategy)
            self._strategy = chosen(**self._place.strategy_options)
            if self._tell is not None:
                self._strategy.tell = self._tell
            if self._place.goes_on and self._store is not None:
                from jupyter_ddl.ranks.strategies.company import Company

                self._strategy.company = Company(self._place, self._store)
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
        self._follow()
        return tuple(ready)

    def _follow(self) -> None:
        """Models may have been moved, and what a checkpoint has given to their optimizers not."""
        if not self._optimizers:
            return
        from jupyter_ddl.ranks.strategies.placing import follow_parameters

        for optimizer in self._optimizers:
            follow_parameters(optimizer)

    def _model(self, model: Any, device: Any) -> Any:
        return model.to(device) if self.strategy is None else self.strategy.wrap(model, device)

    def _loader(self, loader: Any) -> Any:
        from jupyter_ddl.ranks.loader import PreparedLoader, prepare_loader

        index, count = self._share()
        prepared = prepare_loader(loader, rank=index, world_size=count, seed=self._seed)
        if isinstance(prepared, PreparedLoader) and prepared is not loader:
            prepared.is_passed_over = self._passes_next
            self._loaders.append(prepared)
            self._give_back(len(self._loaders) - 1)
            if self._shares_batches:
                prepared.share_batches()
        return prepared

    def _share(self) -> tuple[int, int]:
        """Number and count of the parts that samples are shared out in."""
        if self._place is None or self.strategy is None:
            return 0, 1
        return self.strategy.share(self._place.rank, self._place.world_size)

    def device_mesh(self, device: Any) -> Any:
        """See :func:`jupyter_ddl.ranks.incell.device_mesh`."""
        if self.strategy is None:
            raise ReportError(
                "device_mesh() lays out the ranks of a group, and this cell runs in one process; "
                "put `%%distribute ddp -n N` on its first line, with --strategy fsdp --mesh for a "
                "grid"
            )
        return self.strategy.device_mesh(device)

    # -- steps ----------------------------------------------------------------------------------

    def prepare_step(
        self, model: Any, loss_fn: Any, optimizer: Any, settings: Mapping[str, Any], device: Any
    ) -> Any:
        """See :func:`jupyter_ddl.ranks.incell.prepare_step`."""
        from jupyter_ddl.ranks.strategies.steps import (
            StepRequest,
            StepSettings,
            TrainingStep,
            check_parts,
        )

        check_parts(model, loss_fn, optimizer)
        checked = StepSettings.checked(**settings)
        for loader in self._loaders:
            loader.share_batches()
        self._shares_batches = True
        self._optimizers.add(optimizer)
        parts = StepRequest(model, loss_fn, optimizer, checked, device, self._batch_share)
        if self.strategy is None:
            model.to(device)
            step = TrainingStep(parts)
        else:
            watch_strategy(self.strategy)
            step = self.strategy.prepare_step(parts)
            if self._settled is not None and self._place is not None and self._place.rank == 0:
                self._settled()
        self._follow()
        self._steps.append(weakref.ref(step))
        self._give_scale_back(len(self._steps) - 1)
        return step

    def _batch_share(self, batch: tuple[Any, ...]) -> tuple[int, int] | None:
        if not self._loaders:
            return None
        from jupyter_ddl.ranks.loader import share_of

        return share_of(batch, self._loaders)

    @property
    def reporting_group(self) -> Any:
        """See :meth:`~jupyter_ddl.ranks.strategies.base.Strategy.reporting_group`."""
        return None if self._strategy is None else self._strategy.reporting_group

    @property
    def passes(self) -> bool:
        """Whether this rank was started again, and passes over what the others have done."""
        if self._place is None or self._place.life == 1:
            return False
        return self._strategy is None or self._strategy.passes

    def _passes_next(self) -> bool:
        """Whether the next step is one that the others have made before."""
        return self._strategy is not None and self._strategy.passes_next

    @property
    def n_steps(self) -> int:
        """Steps of ``prepare_step`` since the round began."""
        return 0 if self._strategy is None else self._strategy.n_steps

    def begin_at(self, n_steps: int) -> None:
        """This rank goes on from a checkpoint of its own round, behind so many steps."""
        if self.strategy is not None:
            self.strategy.n_steps = n_steps

    def leave(self, reason: StopReason) -> None:
        """The cell has ended: nobody needs to wait for this rank any longer.

        Raises
        ------
        TrialStopped
            The rank was started again, and the others were through before it had joined them.
        """
        if reason == "complete" and self.passes:
            raise TrialStopped("cancelled")
        if self._strategy is not None:
            self._strategy.leave(reason)

    # -- checkpoints ----------------------------------------------------------------------------

    def is_collective(self, state: Mapping[str, Any]) -> bool:
        """Whether saving this state needs all ranks."""
        if "torch" not in sys.modules:
            return False
        # A cell may also have sharded by itself, or have prepared nothing.
        return is_sharded(state) or (
            self._strategy is not None and self._strategy.is_collective(state)
        )

    def plain_state(self, state: Mapping[str, Any], *, keep: bool) -> dict[str, Any]:
        """State as one process without a strategy would have it, with that of loaders.

        Collective if :meth:`is_collective`; only ranks with ``keep`` get a result to use.
        """
        plain: dict[str, Any] = {name: self._plain(value) for name, value in state.items()}
        if "torch" in sys.modules:
            plain = gathered(plain, keep=keep)
        private: dict[str, Any] = {}
        steps = [made() for made in self._steps]
        scales = [None if step is None else step.scale_state() for step in steps]
        if any(scales):
            private["scales"] = scales
        if self._loaders:
            private["loaders"] = [_state_of(loader) for loader in self._loaders]
        if self._strategy is not None and (extra := self._strategy.extra_state()):
            private["strategy"] = extra
        if private:
            plain[PRIVATE_KEY] = private
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
            self._restored_scales = list(private.get("scales", ()))
            for number in range(len(self._steps)):
                self._give_scale_back(number)
            if self.strategy is not None and "strategy" in private:
                self.strategy.restore_extra(private["strategy"])
        if self._place is not None and "torch" in sys.modules:
            from jupyter_ddl.ranks.strategies.ddp.strategy import accept_plain_state

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

    def _give_scale_back(self, number: int) -> None:
        step = self._steps[number]()
        saved = self._restored_scales[number] if number < len(self._restored_scales) else None
        if step is not None and saved is not None:
            step.restore_scale(saved)

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
        from jupyter_ddl.ranks.strategies.ddp.strategy import DataParallel

        if is_sharded(model):
            # Also of a model that the cell has sharded by itself.
            from jupyter_ddl.ranks.strategies.fsdp.strategy import FullySharded

            return FullySharded().unwrap(model)
        model = DataParallel().unwrap(model)
        return model if self.strategy is None else self.strategy.unwrap(model)


def prepare_step_plainly(
    model: Any, loss_fn: Any, optimizer: Any, settings: Mapping[str, Any], device: Any
) -> Any:
    """Make the step of plain execution."""
    return Training(None, 0).prepare_step(model, loss_fn, optimizer, settings, device)


def prepare_plainly(objects: tuple[Any, ...], device: Any) -> tuple[Any, ...]:
    """Prepare in plain execution: the same objects as a run of one rank would have."""
    torch: Any = sys.modules["torch"]
    return Training(None, torch.initial_seed()).prepare(objects, device)


def _state_of(loader: Any) -> dict[str, int]:
    sampler = loader.sampler
    at = sampler.progress
    return {"epoch": at.epoch, "consumed": at.consumed, "n_samples": sampler.n_samples}
