"""Tells JAX of the rank group, so that ``jax.distributed.initialize()`` needs no arguments.

JAX (0.10) reads the coordinator's address from the environment, but neither how many processes
there are nor which one this is: it asks the clusters that it knows, and lets others be added by
deriving from its ``ClusterEnv``.
"""

from __future__ import annotations

import os
import sys
from typing import Any

__all__ = ["tell_jax"]

_NAME = "jupyter_ddl"


def tell_jax() -> None:
    """Add this rank group to what JAX asks, in front: before a Slurm that the worker runs in.

    Where JAX is not imported, or has no such interface in its version, the cell must call
    ``jax.distributed.initialize(num_processes=world_size(), process_id=rank())``.
    """
    clusters = sys.modules.get("jax._src.clusters")
    base: Any = getattr(clusters, "ClusterEnv", None)
    known = getattr(base, "_cluster_types", None)
    if not isinstance(known, list) or any(each.name == _NAME for each in known):
        return
    offered = type("RankGroupCluster", (base,), {"name": _NAME, **_METHODS})
    known[:] = [offered, *(each for each in known if each is not offered)]


def _is_env_present(_: Any) -> bool:
    return "JAX_PROCESS_ID" in os.environ


def _coordinator_address(_: Any, /, **_options: Any) -> str:
    return os.environ["JAX_COORDINATOR_ADDRESS"]


def _process_count(_: Any) -> int:
    return int(os.environ["JAX_NUM_PROCESSES"])


def _process_id(_: Any) -> int:
    return int(os.environ["JAX_PROCESS_ID"])


def _local_process_id(_: Any) -> int | None:
    """One GPU per rank by its local rank; on the CPU every rank has its own devices."""
    return int(os.environ["LOCAL_RANK"]) if os.environ.get("CUDA_VISIBLE_DEVICES") else None


_METHODS = {
    "is_env_present": classmethod(_is_env_present),
    "get_coordinator_address": classmethod(_coordinator_address),
    "get_process_count": classmethod(_process_count),
    "get_process_id": classmethod(_process_id),
    "get_local_process_id": classmethod(_local_process_id),
}
