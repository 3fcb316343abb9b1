"""Starting alike: rank ``root_rank``'s parameters and optimizer state on every rank."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from jupyter_ddl.errors import SpecError
from jupyter_ddl.horovod.collectives import broadcast_, broadcast_object, require, size

__all__ = ["broadcast_optimizer_state", "broadcast_parameters"]


def broadcast_parameters(
    params: Mapping[str, Any] | Iterable[tuple[str, Any]], root_rank: int = 0
) -> None:
    """Give all ranks the tensors of ``root_rank``, in place.

    Parameters
    ----------
    params : mapping or iterable of pairs
        ``model.state_dict()`` or ``model.named_parameters()``.

    Raises
    ------
    SpecError
        ``params`` is neither.
    """
    require()
    named = params.items() if isinstance(params, Mapping) else params
    try:
        tensors = [(str(name), tensor) for name, tensor in named]
    except (TypeError, ValueError) as error:
        raise SpecError(
            f"broadcast_parameters() got {type(params).__name__}; expected model.state_dict() or "
            f"model.named_parameters()"
        ) from error
    for _, tensor in tensors:
        if isinstance(tensor, torch.Tensor):
            broadcast_(tensor, root_rank)


def broadcast_optimizer_state(optimizer: Any, root_rank: int = 0) -> None:
    """Give all ranks the state and options (learning rate …) of ``root_rank``'s optimizer.

    Ranks may differ in what they have: one of them has resumed, and the others are new.
    """
    require()
    if size() > 1:
        state = broadcast_object(_on_cpu(optimizer.state_dict()), root_rank)
        optimizer.load_state_dict(state)


def _on_cpu(value: Any) -> Any:
    """Pickled tensors of a GPU would go to that GPU again, which is another rank's."""
    if isinstance(value, torch.Tensor):
        return value.detach().cpu()
    if isinstance(value, dict):
        return {key: _on_cpu(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_on_cpu(item) for item in value)
    return value
