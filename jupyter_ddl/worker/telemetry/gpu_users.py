"""Who else has memory on the GPUs that a run is given: told before its ranks begin.

A GPU is given to one run at a time by one controller.  Another cluster, another user or a forgotten
process knows nothing of that, and what they hold is missing when a trial runs out of memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

import psutil

from jupyter_ddl.formats import format_bytes
from jupyter_ddl.protocol.telemetry import GpuProcess, GpuSample
from jupyter_ddl.store.processes import OWNER_VARIABLE, environment_value

__all__ = ["GpuUsers"]

_LEAST_SHARE = 0.02
"""Of a GPU's memory: a process that has merely touched it, as notebooks do, disturbs nobody."""
_FIRST_NAMESPACE = 0xEFFFFFFC
"""Inode of the namespace that the host itself is in (``PROC_PID_INIT_INO`` of Linux)."""
_MAX_TOLD = 1_000


class GpuUsers:
    """Names each process once to each run.  Used on the worker's loop only.

    Parameters
    ----------
    gpus : callable
        The worker's GPUs, as they were read last.
    """

    def __init__(self, gpus: Callable[[], Iterable[GpuSample]]) -> None:
        self._gpus = gpus
        self._told: dict[tuple[str, str, int], None] = {}

    def strangers(self, run_id: str, uuids: Collection[str]) -> list[str]:
        """A sentence for each process of others on these GPUs that this run has not heard of."""
        if not uuids or not _sees_the_host():
            return []
        found = []
        for gpu in self._gpus():
            for process in gpu.processes if gpu.uuid in uuids else ():
                key = (run_id, gpu.uuid, process.pid)
                if key not in self._told and (text := _described(gpu, process)):
                    self._told[key] = None
                    found.append(text)
        while len(self._told) > _MAX_TOLD:
            del self._told[next(iter(self._told))]
        return found


def _described(gpu: GpuSample, process: GpuProcess) -> str:
    """Empty for one of this cluster's own, one that is gone, and one that holds next to nothing."""
    held, total = process.memory_bytes, gpu.memory_total_bytes
    if held is not None and held < _LEAST_SHARE * (total or 0):
        return ""
    if environment_value(process.pid, OWNER_VARIABLE) == os.environ.get(OWNER_VARIABLE, "-"):
        return ""
    try:
        seen = psutil.Process(process.pid)
        # What a process calls itself is its own affair.
        name = "".join(filter(str.isprintable, seen.name()))
        user = seen.username()
    except psutil.Error:
        return ""
    memory = "memory" if held is None else format_bytes(held)
    of_all = "" if held is None or total is None else f" of its {format_bytes(total)}"
    return (
        f"GPU {gpu.index} is used by others, too: process {process.pid} ({name}) of {user} has "
        f"{memory}{of_all}; end it, or start the cluster with a CUDA_VISIBLE_DEVICES without this "
        f"GPU"
    )


def _sees_the_host() -> bool:
    """Whether NVML's pids, which are the host's, mean anything here: not in a container."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino == _FIRST_NAMESPACE
    except OSError:
        return False
