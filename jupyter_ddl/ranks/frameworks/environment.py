"""The variables by which training frameworks take all ranks of a group for one training."""

from __future__ import annotations

from jupyter_ddl.protocol.group import RankPlace

__all__ = ["framework_environment"]


def framework_environment(place: RankPlace) -> dict[str, str]:
    """What accelerate (and ``Trainer``, which is built on it), Lightning and Fabric read.

    Without it they look for GPUs, and where there are none, every rank trains alone.
    """
    n_devices, n_nodes = place.local_world_size, place.world_size // place.local_world_size
    variables = {}
    for prefix in ("PL_TRAINER_", "LT_"):
        variables[f"{prefix}DEVICES"] = str(n_devices)
        variables[f"{prefix}NUM_NODES"] = str(n_nodes)
    if not place.gpus:
        variables["ACCELERATE_USE_CPU"] = "true"
        variables["PL_TRAINER_ACCELERATOR"] = variables["LT_ACCELERATOR"] = "cpu"
    return variables
