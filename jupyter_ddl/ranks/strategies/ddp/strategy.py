"""``--strategy ddp``: a whole copy of the model on every rank, gradients averaged."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from jupyter_ddl.ranks.metrics import ReportError
from jupyter_ddl.ranks.strategies.averages import ToldWithGradients
from jupyter_ddl.ranks.strategies.base import Strategy
from jupyter_ddl.ranks.strategies.ddp.buckets import (
    SIZES_MIB,
    TORCH_MIB,
    BucketTrials,
    candidates,
    choice_text,
    fastest,
    nothing_text,
)
from jupyter_ddl.ranks.strategies.ddp.compression import register_compression
from jupyter_ddl.ranks.strategies.exchange import Exchange
from jupyter_ddl.ranks.strategies.piggyback import Piggyback
from jupyter_ddl.ranks.strategies.sharded import is_sharded
from jupyter_ddl.ranks.strategies.steps import AveragedStep, StepRequest, TrainingStep

__all__ = ["DataParallel", "ShownModule", "accept_plain_state"]


class DataParallel(Strategy):
    """See :class:`~jupyter_ddl.ranks.strategies.base.Strategy`.

    Parameters
    ----------
    compress : str, optional
        How gradients are sent: ``fp16`` or ``bf16`` (half of the bytes of 32 bits), or ``powersgd``
        (a product of two thin matrices, https://arxiv.org/abs/1905.13727).
    tune_buckets : bool, optional
        Choose how many bytes of gradients are sent at once by the times of the first steps.
    """

    bucket_sizes_mib: ClassVar[Sequence[float]] = SIZES_MIB
    """Among which ``tune_buckets`` chooses."""

    def __init__(self, compress: str | None = None, tune_buckets: bool = False) -> None:
        self._compress = compress
        self._tunes = tune_buckets

    def wrap(self, model: Any, device: Any) -> Any:
        if self._tunes:
            raise ReportError(
                f"prepare(model) got a {type(model).__name__}, and --tune-buckets measures whole "
                f"steps; leave model and optimizer out of prepare(…) and write `step = "
                f"prepare_step(model, loss_fn, optimizer)`"
            )
        return self._wrapped(model, device)

    def _wrapped(
        self,
        model: Any,
        device: Any,
        bucket_mib: float | None = None,
        piggyback: Piggyback | None = None,
    ) -> Any:
        """The model in DDP; by default with torch's own size of buckets."""
        if isinstance(model, DistributedDataParallel) or is_sharded(model):
            return model
        model.to(device)
        if not dist.is_initialized():
            raise ReportError(
                "prepare(model) needs the process group, which is not initialised; call "
                "torch.distributed.init_process_group() before it, or leave --no-init out"
            )
        if not any(parameter.requires_grad for parameter in model.parameters()):
            return model  # a frozen model has no gradients to average

        def wrap() -> PreparedModel:
            ids = [device] if device.type == "cuda" else None
            return PreparedModel(model, device_ids=ids, bucket_cap_mb=bucket_mib)

        prepared = wrap() if piggyback is None else piggyback.wrapped(model, wrap)
        if self._compress is not None:
            register_compression(prepared, self._compress, self.exchange)
        return prepared

    @property
    def bytes_sent(self) -> int | None:
        return self.exchange.bytes_sent

    def adapt(self, optimizer: Any) -> None:
        """Nothing to do: the parameters are the same objects as before."""

    def state(self, stateful: Any) -> Mapping[str, Any]:
        state: Mapping[str, Any] = self.unwrap(stateful).state_dict()
        return state

    def prepare_step(self, request: StepRequest) -> TrainingStep:
        if self._tunes and isinstance(request.model, DistributedDataParallel):
            raise ReportError(
                "prepare_step(…) got a DistributedDataParallel, whose buckets --tune-buckets can't "
                "change; give it the model itself, or leave --tune-buckets out"
            )
        piggyback = self._piggyback(request)
        model = self._wrapped(request.model, request.device, piggyback=piggyback)
        wrapped = dataclasses.replace(request, model=model)
        trials = self._bucket_trials(request.model) if self._tunes else None
        n_ranks = dist.get_world_size()
        if trials is None:
            step = DataParallelStep(wrapped, self.exchange, n_ranks)
        else:
            step = TunedStep(wrapped, self.exchange, n_ranks)
            step.tune(trials, self._wrapped, self._tell_once)
        step.is_counted_by_hooks = self._compress is not None
        if piggyback is not None:
            step.tell_by(piggyback)
        return step

    def _piggyback(self, request: StepRequest) -> Piggyback | None:
        """For the numbers of a step: not where gradients are rounded, or the model is in DDP."""
        is_wrapped = isinstance(request.model, DistributedDataParallel)
        if is_wrapped or self._compress is not None or self._tunes:
            return None
        return Piggyback.of(request.model, request.device)

    def _bucket_trials(self, model: Any) -> BucketTrials | None:
        n_bytes = sum(each.nbytes for each in model.parameters() if each.requires_grad)
        sizes = candidates(n_bytes, self.bucket_sizes_mib)
        if len(sizes) > 1:
            return BucketTrials(sizes)
        self._tell_once(nothing_text(n_bytes))
        return None

    def _tell_once(self, text: str) -> None:
        if dist.get_rank() == 0:
            self.tell(text)

    def unwrap(self, model: Any) -> Any:
        return model.module if isinstance(model, DistributedDataParallel) else model


class DataParallelStep(AveragedStep):
    """Gradients of all parts of a batch are averaged once, with its last part."""

    cuts_alike = False
    is_counted_by_hooks = False
    """Whether what is sent of gradients is counted where it is compressed."""

    def __init__(self, request: StepRequest, exchange: Exchange, n_ranks: int) -> None:
        super().__init__(request, exchange, n_ranks)
        self._n_ranks = n_ranks
        # Walking through modules in each step costs 50 µs.
        self._parameters = [(each, each.nbytes) for each in self.model.parameters()]
        # The others take the first rank's in each forward pass.
        sent = self.model.buffers() if dist.get_rank() == 0 else ()
        self._n_buffer_bytes = sum(each.nbytes for each in sent)

    def tell_by(self, piggyback: Piggyback) -> None:
        """The mean loss comes to all ranks with the gradients."""
        self._averages = ToldWithGradients(self._exchange, self._n_ranks, piggyback)

    def synchronize(self) -> None:
        super().synchronize()
        n_bytes = self._n_buffer_bytes
        if not self.is_counted_by_hooks:
            n_bytes += sum(n for each, n in self._parameters if each.requires_grad)
        self._exchange.count(n_bytes)

    def accumulating(self) -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = self.model.no_sync()
        return context


class TunedStep(DataParallelStep):
    """Its first steps measure sizes of buckets; the model is put into DDP anew for each."""

    _trials: BucketTrials | None = None

    def tune(
        self,
        trials: BucketTrials,
        wrapped: Callable[[Any, Any, float | None], Any],
        tell: Callable[[str], None],
    ) -> None:
        """Measure from the next step on.

        Parameters
        ----------
        wrapped : callable
            Puts a model on a device into DDP with a size of buckets in MiB; None: torch's own.
        tell : callable
            Gets one sentence, when the size is chosen.
        """
        self._trials, self._wrapped, self._tell = trials, wrapped, tell
        self._size_mib: float | None = None
        self._began_s = 0.0
        self._use(trials.size_mib)

    def begin(self, n_samples: int) -> None:
        if self._trials is not None:
            self._began_s = self._now_s()
        super().begin(n_samples)

    def update(self) -> None:
        trials = self._trials
        if trials is not None:  # gradients are there: what follows is the same for all sizes
            trials.add(self._now_s() - self._began_s)
        super().update()
        if trials is None:
            return
        if trials.size_mib is None:
            self._choose(trials)
        else:
            self._use(trials.size_mib)

    def _choose(self, trials: BucketTrials) -> None:
        self._trials = None
        by_rank_s = self._exchange.gather_json(trials.medians_s)
        chosen_mib = fastest(trials.sizes_mib, by_rank_s)
        self._use(chosen_mib)
        self._tell(choice_text(trials.sizes_mib, by_rank_s, chosen_mib))

    def _use(self, size_mib: float | None) -> None:
        if size_mib == self._size_mib:
            return
        self._size_mib = size_mib
        plain = self.model.module
        del self.model  # its hooks go with it, before there are new ones
        # Torch's own size is not named: with it goes a smaller first bucket.
        self.model = self._wrapped(plain, self.device, None if size_mib == TORCH_MIB else size_mib)

    def _now_s(self) -> float:
        if self.device.type == "cuda":  # where a host only queues its work
            torch.cuda.synchronize(self.device)
        return time.perf_counter()


class ShownModule(torch.nn.Module):  # type: ignore[misc]  # torch is not followed
    """A wrapper that shows its model's own state and attributes: a cell need not know of it."""

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return self.module.state_dict(*args, **kwargs)

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        return self.module.load_state_dict(_without_prefix(state_dict), *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)


class PreparedModel(ShownModule, DistributedDataParallel):  # type: ignore[misc]
    """DDP by another of the model's methods than ``forward`` is refused."""

    def __getattr__(self, name: str) -> Any:
        value = super().__getattr__(name)
        if name != "module" and getattr(value, "__self__", None) is self.module:
            return _checked(value, name)
        return value


def _checked(method: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A method of the model, refused where its gradients would silently not be averaged."""

    def call(*args: Any, **kwargs: Any) -> Any:
        result = method(*args, **kwargs)
        if _has_gradient(result):
            raise ReportError(
                f"model.{name}(…) was called on a prepared model and its result needs gradients, "
                f"but DDP averages gradients of model(…) only; compute this in forward(), or under "
                f"torch.no_grad() if it is not for training"
            )
        return result

    return call


def _has_gradient(value: Any) -> bool:
    if isinstance(value, torch.nn.Parameter):
        return False
    if isinstance(value, torch.Tensor):
        return bool(value.requires_grad)
    if isinstance(value, Mapping):
        return any(map(_has_gradient, value.values()))
    return isinstance(value, list | tuple) and any(map(_has_gradient, value))


def _without_prefix(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """State of a wrapped model as that of the model itself."""
    if state and all(name.startswith("module.") for name in state):
        return {name.removeprefix("module."): value for name, value in state.items()}
    return state


def accept_plain_state() -> None:
    """Let torch's own DDP load plain state, which is what checkpoints hold.

    A cell that writes ``model = DDP(model)`` itself saves and loads the wrapped model, and its
    checkpoint must also fit one process without DDP.
    """
    original = DistributedDataParallel.load_state_dict
    if original is not torch.nn.Module.load_state_dict:
        return

    def load_state_dict(self: Any, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        if any(name.startswith("module.") for name in state_dict):
            return original(self, state_dict, *args, **kwargs)
        return self.module.load_state_dict(state_dict, *args, **kwargs)

    DistributedDataParallel.load_state_dict = load_state_dict
