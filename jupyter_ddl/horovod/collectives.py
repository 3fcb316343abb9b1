"""Tensors and objects that all ranks combine.  Every function here is called by all ranks."""

from __future__ import annotations

import os
from typing import Any, Final

import torch
import torch.distributed as dist

from jupyter_ddl.errors import LaunchError, SpecError

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
    "init",
    "is_initialized",
    "local_rank",
    "local_size",
    "metric_average",
    "rank",
    "require",
    "shutdown",
    "size",
]


# Who takes part: ``init``, ``rank``, ``size`` and their kin.

_initialized = False
_owns_group = False


def init() -> None:
    """Take part; may be called again.

    The process group of the run is used where it is initialised, else one is made from torchrun's
    environment variables.  Without those this is the only process.
    """
    global _initialized, _owns_group
    if not dist.is_initialized() and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
        _owns_group = True
    _initialized = True


def shutdown() -> None:
    """Take part no more; a process group that the run has made stays."""
    global _initialized, _owns_group
    if _owns_group and dist.is_initialized():
        dist.destroy_process_group()
    _initialized = _owns_group = False


def is_initialized() -> bool:
    """Whether :func:`init` was called, and :func:`shutdown` was not since."""
    return _initialized


def rank() -> int:
    """The number of this process, from 0."""
    require()
    return int(dist.get_rank()) if dist.is_initialized() else 0


def size() -> int:
    """The number of processes."""
    require()
    return int(dist.get_world_size()) if dist.is_initialized() else 1


def local_rank() -> int:
    """The number of this process on its host, from 0."""
    require()
    return int(os.environ.get("LOCAL_RANK", "0")) if dist.is_initialized() else 0


def local_size() -> int:
    """The number of processes on this host."""
    require()
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if dist.is_initialized() else 1


def require() -> None:
    """Raise unless :func:`init` was called.

    Raises
    ------
    LaunchError
        It was not.
    """
    if not _initialized:
        raise LaunchError("jupyter_ddl.horovod is not initialised; call hvd.init() first")


# ruff: noqa: ARG001 - the names that Horovod's callers give have no use here


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
