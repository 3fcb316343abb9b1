"""The GPUs of a worker, as the controller is told of them."""

from __future__ import annotations

import asyncio
import importlib.util
import re
from pathlib import Path

import msgspec

from jupyter_ddl.protocol.group import SeenGpus
from jupyter_ddl.store.nvml import GpuInventory, inventory

__all__ = ["describe_gpus"]

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
