"""Horovod's five steps over torch.distributed: ``import jupyter_ddl.horovod as hvd``.

1. ``hvd.init()``; 2. one device per rank: ``hvd.local_rank()``; 3. scale the learning rate by
``hvd.size()`` and wrap the optimizer in ``hvd.DistributedOptimizer``; 4. start alike with
``hvd.broadcast_parameters`` and ``hvd.broadcast_optimizer_state``; 5. save on ``hvd.rank() == 0``.

Names and meanings follow ``horovod.torch``.  Under ``%%distribute ddp`` the process group is the
run's own; in plain execution there is one process, and everything works with size 1.
"""

from __future__ import annotations

from jupyter_ddl.horovod.collectives import (
    Average,
    Max,
    Min,
    Sum,
    allgather,
    allreduce,
    allreduce_,
    broadcast,
    broadcast_,
    broadcast_object,
    init,
    is_initialized,
    local_rank,
    local_size,
    metric_average,
    rank,
    shutdown,
    size,
)
from jupyter_ddl.horovod.optimizer import Compression, DistributedOptimizer
from jupyter_ddl.horovod.state import broadcast_optimizer_state, broadcast_parameters

__all__ = [
    "Average",
    "Compression",
    "DistributedOptimizer",
    "Max",
    "Min",
    "Sum",
    "allgather",
    "allreduce",
    "allreduce_",
    "broadcast",
    "broadcast_",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "init",
    "is_initialized",
    "local_rank",
    "local_size",
    "metric_average",
    "rank",
    "shutdown",
    "size",
]
