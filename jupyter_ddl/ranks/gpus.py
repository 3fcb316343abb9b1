"""The GPUs of a worker, as the controller is told of them, and a rank's choice among them."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from jupyter_ddl.errors import LaunchError
from jupyter_ddl.protocol.group import RankPlace, SeenGpus
from jupyter_ddl.store.nvml import GpuInventory, inventory

__all__ = ["choose_device", "describe_gpus", "use_gpus"]

_TIMEOUT_S = 30.0
"""A driver in trouble can hold NVML for minutes."""
_CUDA_OF_TORCH = re.compile(r"^cuda\b[^=]*= *'", re.MULTILINE)


async def describe_gpus() -> bytes:
    """An encoded :class:`SeenGpus`; called on a worker with ``Client.run``."""
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            found: GpuInventory = await asyncio.to_thread(inventory)
    except TimeoutError:
        found = GpuInventory(f"n/a: NVML did not answer within {_TIMEOUT_S:.0f} s")
    names = {gpu.uuid: gpu.name for gpu in found.gpus}
    return msgspec.msgpack.encode(SeenGpus(names, found.state, bool(names) and _torch_has_cuda()))


def _torch_has_cuda() -> bool:
    """Whether the installed torch was built for CUDA; told by its files, without importing it."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return False
    try:
        text = (Path(spec.origin).parent / "version.py").read_text()
    except OSError:
        return False
    return _CUDA_OF_TORCH.search(text) is not None


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
