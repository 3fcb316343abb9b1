"""``--strategy ddp``: a whole copy of the model on every rank, gradients averaged."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from jupyter_ddl.ranks.metrics import ReportError
from jupyter_ddl.ranks.strategies.base import Strategy
from jupyter_ddl.ranks.strategies.compression import register_compression
from jupyter_ddl.ranks.strategies.sharded import is_sharded
from jupyter_ddl.ranks.strategies.steps import AveragedStep, StepRequest, TrainingStep

__all__ = ["DataParallel", "accept_plain_state", "without_prefix"]


class DataParallel(Strategy):
    """See :class:`~jupyter_ddl.ranks.strategies.base.Strategy`.

    Parameters
    ----------
    compress : str, optional
        How gradients are sent: ``fp16`` or ``bf16`` (half of the bytes of 32 bits), or ``powersgd``
        (a product of two thin matrices, https://arxiv.org/abs/1905.13727).
    """

    def __init__(self, compress: str | None = None) -> None:
        self._compress = compress

    def wrap(self, model: Any, device: Any) -> Any:
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
        prepared = PreparedModel(model, device_ids=[device] if device.type == "cuda" else None)
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
        model = self.wrap(request.model, request.device)
        wrapped = dataclasses.replace(request, model=model)
        step = DataParallelStep(wrapped, self.exchange, dist.get_world_size())
        step.is_counted_by_hooks = self._compress is not None
        return step

    def unwrap(self, model: Any) -> Any:
        return model.module if isinstance(model, DistributedDataParallel) else model


class DataParallelStep(AveragedStep):
    """Gradients of all parts of a batch are averaged once, with its last part."""

    cuts_alike = False
    is_counted_by_hooks = False
    """Whether what is sent of gradients is counted where it is compressed."""

    def synchronize(self) -> None:
        n_bytes = 0
        if not self.is_counted_by_hooks:
            n_bytes += sum(each.nbytes for each in self.model.parameters() if each.requires_grad)
        if dist.get_rank() == 0:  # whose buffers the others take in each forward pass
            n_bytes += sum(each.nbytes for each in self.model.buffers())
        self._exchange.count(n_bytes)

    def accumulating(self) -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = self.model.no_sync()
        return context


class PreparedModel(DistributedDataParallel):  # type: ignore[misc]  # torch is not followed
    """DDP that shows the model's own state and attributes, so that a cell need not know of it."""

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return self.module.state_dict(*args, **kwargs)

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        return self.module.load_state_dict(without_prefix(state_dict), *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            module = super().__getattr__("module")
        value = getattr(module, name)
        if getattr(value, "__self__", None) is module:
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


def without_prefix(state: Mapping[str, Any]) -> Mapping[str, Any]:
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
