"""A rank's choice among the GPUs of its worker."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from jupyter_ddl.errors import LaunchError
from jupyter_ddl.protocol.group import RankPlace

__all__ = ["choose_device", "use_gpus"]


def use_gpus(uuids: Sequence[str]) -> None:
    """Hide all other GPUs from this process; called before anything in it has used one.

    CUDA reads the variable when a process first uses a GPU, so it does not matter that the zygote
    has imported torch.
    """
    if uuids:
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(uuids)


def choose_device(place: RankPlace) -> None:
    """Make the rank's own GPU the one that ``.cuda()`` means.

    Raises
    ------
    LaunchError
        The rank was given a GPU, and torch can't use it.
    """
    torch: Any = sys.modules.get("torch")
    if not place.gpus or torch is None:
        return
    if not torch.cuda.is_available():
        own, version = ", ".join(place.own_gpus), torch.__version__
        raise LaunchError(
            f"rank {place.rank} was given {own}, and torch {version} (built for "
            f"{torch.version.cuda or 'no CUDA'}) can't use it; install a torch that is built for "
            f"the driver of this host, or pass --gpus-per-rank 0"
        )
    torch.cuda.set_device(place.device_index)
