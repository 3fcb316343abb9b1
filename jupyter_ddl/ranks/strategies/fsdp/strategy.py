"""``--strategy fsdp``: parameters, gradients and optimizer state cut into one part per rank.

torch's FSDP2 (``fully_shard``), which works on the CPU with gloo as well as on GPUs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils._pytree import tree_map_only

from jupyter_ddl.ranks.collective_waits import collective_waits
from jupyter_ddl.ranks.metrics import ReportError
from jupyter_ddl.ranks.strategies.base import Share, Strategy
from jupyter_ddl.ranks.strategies.fsdp.tensor_parallel import (
    ScalerOverMeshes,
    clip_over_meshes,
    cut_layers,
    update_one_by_one,
)
from jupyter_ddl.ranks.strategies.mesh import check_mesh, parse_mesh
from jupyter_ddl.ranks.strategies.sharded import is_sharded, like
from jupyter_ddl.ranks.strategies.steps import AveragedStep, StepRequest, TrainingStep

__all__ = ["FullySharded"]

_MIN_BLOCK_PARAMETERS = 100_000
"""Smaller blocks are gathered with the rest: a collective of their own costs more than it saves."""
_FSDP_ATTRIBUTES = ("__composable_api_", "_is_fsdp_", "_fsdp_")
"""Beginnings of the names under which ``fully_shard`` leaves its own things in a module."""
_REPLACED_BY = "_jupyter_ddl_replaced_by"


class FullySharded(Strategy):
    """See :class:`~jupyter_ddl.ranks.strategies.base.Strategy`.

    Parameters
    ----------
    mesh : str, optional
        The ranks as a grid, as in ``dp=2,tp=2``; by default one axis, over which all is cut.
    tp_plan : str, optional
        JSON: how layers are cut over ``tp``, ``colwise`` or ``rowwise`` by patterns of names.
    """

    def __init__(self, mesh: str | None = None, tp_plan: str | None = None) -> None:
        self._sizes = parse_mesh(mesh) if mesh else {}
        self._plan: dict[str, str] = json.loads(tp_plan) if tp_plan else {}
        self._guarded = False

    def wrap(self, model: Any, device: Any) -> Any:
        if is_sharded(model):
            return model
        if not dist.is_initialized():
            raise ReportError(
                "prepare(model) with --strategy fsdp needs the process group, which is not "
                "initialised; call torch.distributed.init_process_group() before it, or leave "
                "--no-init out"
            )
        model.to(device)
        _broadcast_from_rank_0(model)
        before = dict(model.named_parameters(remove_duplicate=False))
        self._shard(model, self.device_mesh(device))
        after = dict(model.named_parameters(remove_duplicate=False))
        for name, parameter in before.items():
            if after[name] is not parameter:  # as where layers are cut, and nothing else
                setattr(parameter, _REPLACED_BY, after[name])
        model.register_load_state_dict_pre_hook(_shard_state)
        self._guard_optimizers()
        return model

    def _shard(self, model: Any, mesh: Any) -> None:
        if "tp" in self._sizes:
            cut_layers(model, self._plan, mesh["tp"])
            collective_waits.misses_some = True
        axes = tuple(name for name in mesh.mesh_dim_names if name != "tp")
        if not axes:
            return
        # One axis cuts; of two, the first one has copies of what the second one cuts.
        data = mesh[axes] if len(axes) > 1 else mesh[axes[0]]
        for block in itertools.chain(_blocks(model), (model,)):
            block.register_forward_hook(_without_views)
            fully_shard(block, mesh=data)

    def axes(self, n_ranks: int) -> Mapping[str, int]:
        """See the base class.

        Raises
        ------
        OptionError
            A later round has another number of ranks than the grid.
        """
        if not self._sizes:
            return super().axes(n_ranks)
        check_mesh(self._sizes, n_ranks)
        return self._sizes

    def share(self, rank: int, n_ranks: int) -> Share:
        """Ranks that cut layers among them are given the same samples."""
        n_together = self._sizes.get("tp", 1)
        return Share(rank // n_together, n_ranks // n_together)

    def adapt(self, optimizer: Any) -> None:
        """Put the sharded parameters into an optimizer that was made before ``prepare(model)``."""
        for group in optimizer.param_groups:
            group["params"] = [getattr(each, _REPLACED_BY, each) for each in group["params"]]
        for old in [each for each in optimizer.state if hasattr(each, _REPLACED_BY)]:
            new = getattr(old, _REPLACED_BY)
            values = optimizer.state.pop(old)
            optimizer.state[new] = {name: like(value, new) for name, value in values.items()}
        if not hasattr(optimizer, "_jupyter_ddl_shards"):
            optimizer._jupyter_ddl_shards = True
            optimizer.register_load_state_dict_pre_hook(_shard_optimizer_state)
            if "tp" in self._sizes:
                update_one_by_one(optimizer)

    def state(self, stateful: Any) -> Mapping[str, Any]:
        state: Mapping[str, Any] = stateful.state_dict()
        return state

    def prepare_step(self, request: StepRequest) -> TrainingStep:
        model = self.wrap(request.model, request.device)
        self.adapt(request.optimizer)
        wrapped = dataclasses.replace(request, model=model)
        step = ShardedStep(wrapped, self.exchange, dist.get_world_size())
        step.has_meshes = "tp" in self._sizes
        if step.has_meshes and step.scaler is not None:
            step.scaler = ScalerOverMeshes(request.device.type)
        return step

    def unwrap(self, model: Any) -> Any:
        return _plain_copy(model, {}) if is_sharded(model) else model

    def _guard_optimizers(self) -> None:
        """An optimizer with whole parameters would train nothing, and say nothing."""
        if not self._guarded:
            self._guarded = True
            register_optimizer_step_pre_hook(_refuse_replaced)


class ShardedStep(AveragedStep):
    """Gradients of all parts of a batch are reduced once, with its last part.

    Each forward and backward pass gathers the parameters.
    """

    has_meshes = False
    """Whether some parameters are cut over other axes than others."""

    def clip(self, limit: float) -> None:
        if self.has_meshes:
            clip_over_meshes(self.model.parameters(), limit)
        else:
            super().clip(limit)

    @contextlib.contextmanager
    def accumulating(self) -> Iterator[None]:
        if not isinstance(self.model, FSDPModule):  # nothing to average: all ranks are one
            yield
            return
        self.model.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            self.model.set_requires_gradient_sync(True)


def _without_views(_module: Any, _inputs: Any, output: Any) -> Any:
    """Outputs that may be changed in place.

    With a view torch's own hook on it would be lost by that; torch can but warn of each one.
    """
    if not torch.is_grad_enabled():
        return output
    return tree_map_only(torch.Tensor, _owned, output)


def _owned(tensor: Any) -> Any:
    return tensor if tensor._base is None or not tensor.requires_grad else tensor.clone()


def _refuse_replaced(optimizer: Any, _args: Any, _kwargs: Any) -> None:
    for group in optimizer.param_groups:
        if any(hasattr(parameter, _REPLACED_BY) for parameter in group["params"]):
            raise ReportError(
                f"{type(optimizer).__name__} was made before prepare(model), and --strategy fsdp "
                f"has replaced the model's parameters since; write "
                f"`model, optimizer = prepare(model, optimizer)`"
            )


def _broadcast_from_rank_0(model: Any) -> None:
    """Have all ranks start from the same values, as DDP does."""
    for tensor in (*model.parameters(), *model.buffers()):
        dist.broadcast(tensor.detach(), 0)


def _blocks(model: Any) -> Iterator[Any]:
    """Repeated parts that are gathered one at a time: the members of a ``ModuleList``.

    Not those that share a parameter with the rest of the model, which would be in two groups.
    """
    uses = Counter(
        id(parameter)
        for module in model.modules()
        for parameter in module.parameters(recurse=False)
    )
    for holder in model.modules():
        if not isinstance(holder, torch.nn.ModuleList):
            continue
        for block in holder:
            own = Counter(
                id(parameter)
                for module in block.modules()
                for parameter in module.parameters(recurse=False)
            )
            size = sum(parameter.numel() for parameter in block.parameters())
            alone = all(uses[key] == number for key, number in own.items())
            if size >= _MIN_BLOCK_PARAMETERS and alone and not isinstance(block, FSDPModule):
                yield block


def _shard_state(module: Any, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
    own = dict(module.named_parameters(remove_duplicate=False))
    for name, value in state_dict.items():
        pattern = own.get(name.removeprefix(prefix))
        if pattern is not None:
            state_dict[name] = like(value, pattern)


def _shard_optimizer_state(optimizer: Any, state_dict: dict[str, Any]) -> dict[str, Any]:
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    state = {
        index: {name: like(value, parameters[index]) for name, value in values.items()}
        if isinstance(index, int) and index < len(parameters)
        else values
        for index, values in state_dict["state"].items()
    }
    return {**state_dict, "state": state}


def _plain_copy(module: Any, copies: dict[int, Any]) -> Any:
    """The same module before ``fully_shard``, with whole parameters on the CPU.  Collective."""
    if id(module) in copies:
        return copies[id(module)]
    kind: Any = type(module)
    if isinstance(module, FSDPModule):
        kind = kind.__bases__[1]  # fully_shard has put a class before the module's own
    copy = copies[id(module)] = kind.__new__(kind)
    for name, value in module.__dict__.items():
        if name.startswith(_FSDP_ATTRIBUTES):
            continue
        copy.__dict__[name] = _own_hooks(value) if name.endswith("_hooks") else value
    copy.__dict__["_parameters"] = {
        name: _whole(parameter, copies) for name, parameter in module._parameters.items()
    }
    copy.__dict__["_buffers"] = {
        name: None if buffer is None else buffer.detach().cpu()
        for name, buffer in module._buffers.items()
    }
    copy.__dict__["_modules"] = {
        name: None if child is None else _plain_copy(child, copies)
        for name, child in module._modules.items()
    }
    return copy


def _own_hooks(hooks: Any) -> Any:
    """The model's own hooks, without those of ``fully_shard`` and of this module."""
    if not isinstance(hooks, OrderedDict):
        return hooks
    return OrderedDict(
        (key, hook) for key, hook in hooks.items() if not _is_foreign(getattr(hook, "hook", hook))
    )


def _is_foreign(hook: Any) -> bool:
    function = getattr(hook, "__func__", hook)
    where = getattr(function, "__module__", "") or ""
    return where == __name__ or where.startswith("torch.distributed")


def _whole(parameter: Any, copies: dict[int, Any]) -> Any:
    if parameter is None:
        return None
    if id(parameter) not in copies:
        value = parameter.detach()
        whole = value.full_tensor() if is_sharded(value) else value
        copies[id(parameter)] = torch.nn.Parameter(whole.cpu(), parameter.requires_grad)
    return copies[id(parameter)]
