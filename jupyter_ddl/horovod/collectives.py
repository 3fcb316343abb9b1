"""Tensors and objects that all ranks combine.  Every function here is called by all ranks."""

# ruff: noqa: ARG001 - the names that Horovod's callers give have no use here
from __future__ import annotations

from typing import Any, Final

import torch
import torch.distributed as dist

from jupyter_ddl.errors import SpecError
from jupyter_ddl.horovod.group import require, size

__all__ = [
    "Average",
    "Max",
    "Min",
    "Sum",
    "allgather",
    "allreduce",
    "allreduce_",
    "broadcast",
    "broadcast_",
    "broadcast_object",
    "metric_average",
]

Average: Final = "average"
Sum: Final = "sum"
Min: Final = "min"
Max: Final = "max"
_OPERATIONS = {Average: "SUM", Sum: "SUM", Min: "MIN", Max: "MAX"}


def allreduce(
    tensor: Any, average: bool | None = None, name: str | None = None, op: str | None = None
) -> Any:
    """Combine a tensor over all ranks into a new one of the same shape.

    Parameters
    ----------
    tensor : torch.Tensor
        Of the same shape and type on all ranks.
    average : bool, optional
        Horovod's older way to say ``op=Average`` or ``op=Sum``.
    name : str, optional
        Not needed here: ranks meet in the order of their calls.
    op : optional
        ``Average`` (default), ``Sum``, ``Min`` or ``Max``.

    Raises
    ------
    SpecError
        ``op`` is something else.
    """
    return allreduce_(tensor.detach().clone(), average, name, op)


def allreduce_(
    tensor: Any, average: bool | None = None, name: str | None = None, op: str | None = None
) -> Any:
    """:func:`allreduce` in place."""
    require()
    chosen = op if op is not None else Sum if average is False else Average
    if chosen not in _OPERATIONS:
        raise SpecError(f"allreduce(op={chosen!r}): expected hvd.Average, Sum, Min or Max")
    if size() == 1:
        return tensor
    dist.all_reduce(tensor, op=getattr(dist.ReduceOp, _OPERATIONS[chosen]))
    if chosen == Average:
        if tensor.is_floating_point() or tensor.is_complex():
            tensor.div_(size())
        else:
            tensor.floor_divide_(size())
    return tensor


def allgather(tensor: Any, name: str | None = None) -> Any:
    """Put the tensors of all ranks behind each other along their first dimension.

    That dimension may differ between ranks; the others must not.
    """
    require()
    if size() == 1:
        return tensor.detach().clone()
    own = tensor.detach().contiguous()
    own = own.reshape(1) if own.dim() == 0 else own
    length = torch.tensor([own.shape[0]], device=own.device)
    lengths = [torch.empty_like(length) for _ in range(size())]
    dist.all_gather(lengths, length)
    rows = [int(each) for each in lengths]
    # Backends gather equal shapes only: shorter ones are filled up and cut afterwards.
    padded = own.new_zeros((max(rows), *own.shape[1:]))
    padded[: own.shape[0]] = own
    parts = [torch.empty_like(padded) for _ in rows]
    dist.all_gather(parts, padded)
    return torch.cat([part[:n] for part, n in zip(parts, rows, strict=True)])


def broadcast(tensor: Any, root_rank: int, name: str | None = None) -> Any:
    """A new tensor with the values of ``root_rank``'s."""
    return broadcast_(tensor.detach().clone(), root_rank, name)


def broadcast_(tensor: Any, root_rank: int, name: str | None = None) -> Any:
    """:func:`broadcast` in place."""
    require()
    if size() > 1:
        if tensor.is_contiguous():
            dist.broadcast(tensor.detach(), root_rank)
        else:
            whole = tensor.detach().contiguous()
            dist.broadcast(whole, root_rank)
            tensor.detach().copy_(whole)
    return tensor


def broadcast_object(obj: Any, root_rank: int = 0, name: str | None = None) -> Any:
    """The object of ``root_rank``, pickled on the way."""
    require()
    if size() == 1:
        return obj
    held = [obj]
    dist.broadcast_object_list(held, root_rank)
    return held[0]


def metric_average(value: Any, name: str | None = None) -> float:
    """The mean of a number over all ranks, in 64 bits (every Horovod example has its own)."""
    number = torch.tensor([float(value)], dtype=torch.float64, device=_device())
    return float(allreduce_(number))


def _device() -> Any:
    if dist.is_initialized() and dist.get_backend() == "nccl":
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")
