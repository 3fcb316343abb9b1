"""Sharded tensors (torch's DTensor): found, gathered, and cut from whole ones again."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["gathered", "is_sharded", "like"]


def is_sharded(value: Any) -> bool:
    """Whether a tensor, module, optimizer or a tree of them has sharded tensors."""
    tensor = _dtensor()
    if tensor is None:  # nobody in this process can have made one
        return False
    return any(isinstance(leaf, tensor) for leaf in _leaves(value))


def gathered(value: Any, *, keep: bool) -> Any:
    """Replace the sharded tensors of a tree by whole ones on the CPU.  Collective.

    Parameters
    ----------
    value : object
        Equal in form on all ranks.
    keep : bool
        Without it the whole tensors are dropped at once, and None stands for each.
    """
    tensor = _dtensor()
    if tensor is not None and isinstance(value, tensor):
        whole = value.detach().full_tensor()
        return whole.cpu() if keep else None
    if isinstance(value, Mapping):
        return {name: gathered(item, keep=keep) for name, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(gathered(item, keep=keep) for item in value)
    return value


def like(value: Any, pattern: Any) -> Any:
    """Cut a whole tensor as ``pattern`` is cut; every rank has the whole one, nothing is sent."""
    import torch

    tensor = _dtensor()
    if (
        tensor is None
        or not isinstance(pattern, tensor)
        or not isinstance(value, torch.Tensor)
        or isinstance(value, tensor)
        or value.shape != pattern.shape
    ):
        return value
    from torch.distributed.tensor import distribute_tensor

    moved = value.detach().to(pattern.device)
    return distribute_tensor(
        moved, pattern.device_mesh, list(pattern.placements), src_data_rank=None
    )


def _leaves(value: Any) -> Iterable[Any]:
    import torch

    if isinstance(value, torch.nn.Module):
        yield from value.parameters()
    elif isinstance(value, torch.optim.Optimizer):
        for group in value.param_groups:
            yield from group["params"]
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _leaves(item)
    elif type(value) in (list, tuple):
        for item in value:
            yield from _leaves(item)
    else:
        yield value


def _dtensor() -> Any:
    module: Any = sys.modules.get("torch.distributed.tensor")
    return None if module is None else getattr(module, "DTensor", None)
