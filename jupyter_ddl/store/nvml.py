"""Which GPUs this process may use, as NVML tells it.

Nothing here raises, but a driver in trouble can hold a call for minutes: callers make it in a
thread, with a deadline.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec
import pynvml

__all__ = ["Gpu", "GpuInventory", "ask", "handle_of", "inventory", "reason"]

T = TypeVar("T")

_STATES = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "no NVIDIA driver",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "driver not loaded",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "driver and its library are of different versions",
    pynvml.NVML_ERROR_NO_PERMISSION: "no permission",
    pynvml.NVML_ERROR_GPU_IS_LOST: "lost",
    pynvml.NVML_ERROR_RESET_REQUIRED: "must be reset",
}


class Gpu(msgspec.Struct, frozen=True):
    """A GPU, or one MIG instance of it.

    ``index`` is NVML's, in the order of the PCI bus; an instance has that of its GPU.
    """

    uuid: str
    index: int
    name: str
    memory_total_bytes: int | None = None
    parent_uuid: str = ""


class GpuInventory(msgspec.Struct, frozen=True):
    """GPUs that can be used, in the order of ``CUDA_VISIBLE_DEVICES``.

    ``state`` is empty, or says why there are none (``n/a: driver not loaded``).  ``unreadable``
    tells of those that are there and can't be used: ``GPU 1: lost``.
    """

    state: str = ""
    gpus: tuple[Gpu, ...] = ()
    unreadable: tuple[str, ...] = ()


def inventory(environ: Mapping[str, str] = os.environ) -> GpuInventory:
    """GPUs that this process may use now.  Blocking, perhaps for minutes.

    A GPU that is divided by MIG is listed as its instances.  Entries of ``CUDA_VISIBLE_DEVICES``
    are indices, UUIDs or beginnings of UUIDs; as in CUDA, those behind the first wrong one are
    not seen.
    """
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return GpuInventory(f"n/a: {reason(error)}")
    try:
        return _visible(environ.get("CUDA_VISIBLE_DEVICES"))
    except pynvml.NVMLError as error:
        return GpuInventory(f"n/a: {reason(error)}")
    finally:
        ask(pynvml.nvmlShutdown)


def handle_of(uuid: str) -> Any:
    """NVML's handle of a GPU or an instance; raises ``pynvml.NVMLError``."""
    return pynvml.nvmlDeviceGetHandleByUUID(uuid)


def reason(error: pynvml.NVMLError) -> str:
    """An error of NVML in a few words."""
    return _STATES.get(error.value) or str(error)


def ask(call: Callable[..., T], *arguments: Any) -> T | None:
    """The answer, or None where this GPU or driver does not tell."""
    try:
        return call(*arguments)
    except pynvml.NVMLError:
        return None


def _visible(setting: str | None) -> GpuInventory:
    gpus: list[Gpu] = []
    unreadable: list[str] = []
    n_devices = pynvml.nvmlDeviceGetCount()
    for index in range(n_devices):
        try:
            gpus.extend(_parts(pynvml.nvmlDeviceGetHandleByIndex(index), index))
        except pynvml.NVMLError as error:
            unreadable.append(f"GPU {index}: {reason(error)}")
    seen = gpus if setting is None else _chosen(gpus, setting)
    return GpuInventory(_why_none(seen, gpus, unreadable), tuple(seen), tuple(unreadable))


def _why_none(seen: list[Gpu], gpus: list[Gpu], unreadable: list[str]) -> str:
    if seen:
        return ""
    if gpus:
        return "n/a: CUDA_VISIBLE_DEVICES hides all GPUs"
    return f"n/a: {'; '.join(unreadable)}" if unreadable else "n/a: no GPU"


def _parts(handle: Any, index: int) -> Iterator[Gpu]:
    uuid = pynvml.nvmlDeviceGetUUID(handle)
    mode = ask(pynvml.nvmlDeviceGetMigMode, handle)
    if mode is None or mode[0] != pynvml.NVML_DEVICE_MIG_ENABLE:
        yield _gpu(handle, uuid, index, "")
        return
    for number in range(ask(pynvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
        part = ask(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, number)
        if part is not None:
            yield _gpu(part, pynvml.nvmlDeviceGetUUID(part), index, uuid)


def _gpu(handle: Any, uuid: str, index: int, parent_uuid: str) -> Gpu:
    info: Any = ask(pynvml.nvmlDeviceGetMemoryInfo, handle)
    name = ask(pynvml.nvmlDeviceGetName, handle) or "GPU"
    return Gpu(uuid, index, name, None if info is None else int(info.total), parent_uuid)


def _chosen(gpus: list[Gpu], setting: str) -> list[Gpu]:
    chosen: list[Gpu] = []
    for entry in setting.split(","):
        found = [gpu for gpu in _meant(gpus, entry.strip()) if gpu not in chosen]
        if not found:
            break
        chosen.extend(found)
    return chosen


def _meant(gpus: list[Gpu], entry: str) -> list[Gpu]:
    if entry.isdecimal():
        return [gpu for gpu in gpus if gpu.index == int(entry)]
    if not entry.startswith(("GPU-", "MIG-")):
        return []
    exact = [gpu for gpu in gpus if entry in (gpu.uuid, gpu.parent_uuid)]
    begun = [gpu for gpu in gpus if gpu.uuid.startswith(entry)]
    return exact or (begun if len(begun) == 1 else [])
