"""Who takes part: ``init``, ``rank``, ``size`` and their kin."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist

from jupyter_ddl.errors import LaunchError

__all__ = [
    "init",
    "is_initialized",
    "local_rank",
    "local_size",
    "rank",
    "require",
    "shutdown",
    "size",
]

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
