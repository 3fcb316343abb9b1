"""Layers cut over ranks that compute each sample together: ``--mesh tp=…`` with ``--tp-plan``."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

from jupyter_ddl.nearest import did_you_mean
from jupyter_ddl.ranks.metrics import ReportError

__all__ = ["ScalerOverMeshes", "clip_over_meshes", "cut_layers", "update_one_by_one"]

_KINDS = {"colwise": ColwiseParallel, "rowwise": RowwiseParallel}
_CAN_BE_CUT = (torch.nn.Linear, torch.nn.Embedding)

# It warns of each whole parameter that is gathered over two axes, which a checkpoint does.
logging.getLogger("torch.distributed.tensor._redistribute").setLevel(logging.ERROR)


def cut_layers(model: Any, plan: Mapping[str, str], mesh: Any) -> None:
    """Cut the layers that a plan names, each over the ranks of a mesh with one axis.

    Raises
    ------
    ReportError
        A pattern matches no module, or one that can't be cut.
    """
    modules = {name: module for name, module in model.named_modules() if name}
    chosen: dict[str, Any] = {}
    for pattern, kind in plan.items():
        found = [name for name in modules if fnmatchcase(name, pattern)]
        if not found:
            raise ReportError(
                f"--tp-plan: {pattern!r} matches no module of {type(model).__name__}; expected "
                f"patterns of names such as {', '.join(list(modules)[:6])}"
                f"{did_you_mean(pattern, list(modules))}"
            )
        for name in found:
            if not isinstance(modules[name], _CAN_BE_CUT):
                raise ReportError(
                    f"--tp-plan: {pattern!r} matches {name!r}, a {type(modules[name]).__name__}; "
                    f"expected torch.nn.Linear and torch.nn.Embedding only"
                )
            chosen[name] = _KINDS[kind]()
    parallelize_module(model, mesh, chosen)


def clip_over_meshes(parameters: Any, limit: float) -> None:
    """Clip gradients of which some are cut over other axes than others; torch's own can't."""
    gradients = [each.grad for each in parameters if each.grad is not None]
    squares = [_whole(torch.linalg.vector_norm(each)).double() ** 2 for each in gradients]
    norm = torch.stack(squares).sum().sqrt()
    factor = float(torch.clamp(limit / (norm + 1e-6), max=1.0))
    for each in gradients:
        each.mul_(factor)


def update_one_by_one(optimizer: Any) -> None:
    """Have an optimizer update parameters that are not all cut alike one after another.

    On GPUs those of torch update all of a group at once, and can't with such ones.  What a
    checkpoint keeps of the group is as before.
    """
    asked: list[tuple[dict[str, Any], Any]] = []

    def before(*_: Any) -> None:
        for group in optimizer.param_groups:
            meshes = {getattr(each, "device_mesh", None) for each in group["params"]}
            if "foreach" in group and len(meshes) > 1:
                asked.append((group, group["foreach"]))
                group["foreach"] = False

    def after(*_: Any) -> None:
        while asked:
            group, foreach = asked.pop()
            group["foreach"] = foreach

    optimizer.register_step_pre_hook(before)
    optimizer.register_step_post_hook(after)


class ScalerOverMeshes(torch.amp.GradScaler):  # type: ignore[misc]  # torch is not followed
    """Gradients of which some are cut over other axes than others; torch's own can't scale them."""

    def _unscale_grads_(
        self, optimizer: Any, inv_scale: Any, found_inf: Any, allow_fp16: bool
    ) -> dict[Any, Any]:
        given = (each.grad for group in optimizer.param_groups for each in group["params"])
        gradients = [_own_part(each) for each in given if each is not None]
        overflown = found_inf.clone()
        if gradients:
            torch._amp_foreach_non_finite_check_and_unscale_(gradients, overflown, inv_scale)
        # One rank's overflow is that of all: they would go on with different parameters.
        dist.all_reduce(overflown, dist.ReduceOp.MAX)
        return {overflown.device: overflown}


def _own_part(value: Any) -> Any:
    return value.to_local() if isinstance(value, DTensor) else value


def _whole(value: Any) -> Any:
    return value.full_tensor() if isinstance(value, DTensor) else value
