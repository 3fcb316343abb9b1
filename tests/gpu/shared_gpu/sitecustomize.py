"""On a host with one GPU, each process that starts with this sees two of them, which are the same.

Python imports a module of this name when it starts.  So ranks that are given a GPU each can be
tried under NCCL where there is one: it refuses two ranks on one GPU of a host, and takes what
differs in ``NCCL_HOSTID`` for two hosts, which talk through sockets.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

_MARK = "#shared"


def _one_is_two(nvml: Any) -> None:
    found, handle = nvml.inventory, nvml.handle_of

    def inventory(*arguments: Any) -> Any:
        seen = found(*arguments)
        if len(seen.gpus) != 1:
            return seen
        (gpu,) = seen.gpus
        twin = type(gpu)(gpu.uuid + _MARK, gpu.index, gpu.name, gpu.memory_total_bytes)
        return type(seen)(seen.state, (gpu, twin), seen.unreadable)

    nvml.inventory = inventory
    nvml.handle_of = lambda uuid: handle(uuid.removesuffix(_MARK))


def _use_the_one(gpus: Any) -> None:
    def use_gpus(uuids: Sequence[str]) -> None:
        if uuids:
            (uuid,) = {each.removesuffix(_MARK) for each in uuids}
            os.environ["CUDA_VISIBLE_DEVICES"] = uuid
            os.environ["NCCL_HOSTID"] = f"process-{os.getpid()}"

    gpus.use_gpus = use_gpus


def _number_it(group: Any) -> None:
    group.RankPlace.device_index = property(lambda _: 0)
    group.RankPlace.own_gpus = property(lambda self: self.gpus[:1])


_CHANGES: dict[str, Callable[[Any], None]] = {
    "jupyter_ddl.store.nvml": _one_is_two,
    "jupyter_ddl.ranks.gpus": _use_the_one,
    "jupyter_ddl.protocol.group": _number_it,
}


class _Changing(importlib.abc.MetaPathFinder):
    """Changes a module right after it was imported, before anybody has taken a name from it."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        change = _CHANGES.get(name)
        if change is None:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            execute = loader.exec_module

            def exec_module(module: Any) -> None:
                execute(module)
                change(module)

            loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, _Changing())
