"""Launchers of processes, called in a rank of a group: the processes are the ranks.

``torch.multiprocessing.spawn(fn, args, nprocs=n)`` in a cell of n ranks calls ``fn(rank, *args)``
once in each of them, and so does what starts processes by torchrun's own launcher, as
``accelerate.notebook_launcher`` does.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

from jupyter_ddl.errors import SpecError
from jupyter_ddl.formats import format_counted
from jupyter_ddl.protocol.group import RankPlace
from jupyter_ddl.ranks.imports import after_import, replace_everywhere

__all__ = ["replace_launchers", "replace_spawn_of_cells"]

_in_group = False
_is_alone = False


def replace_launchers(place: RankPlace) -> None:
    """For the life of this process; what is imported later is replaced then."""
    global _in_group
    _in_group = True
    after_import("torch.multiprocessing", lambda: _replace_spawn(place))
    after_import("torch.distributed.launcher.api", lambda: _replace_torchrun(place))


def replace_spawn_of_cells() -> None:
    """In a rank that is alone: a new process would not find the functions of a cell."""
    global _is_alone
    if not _is_alone and not _in_group:
        _is_alone = True
        alone = RankPlace("", rank=0, world_size=1)
        after_import("torch.multiprocessing", lambda: _replace_spawn(alone))


class _Ended:
    """What ``spawn(…, join=False)`` returns, when its processes are through already."""

    processes: Sequence[Any] = ()

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        return True

    def pids(self) -> list[int]:
        return []


def _replace_spawn(place: RankPlace) -> None:
    spawning = sys.modules["torch.multiprocessing.spawn"].__dict__
    originals: list[Any] = [spawning[name] for name in ("spawn", "start_processes")]

    def start(
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        nprocs: int = 1,
        join: bool = True,
        daemon: bool = False,
        start_method: str = "spawn",
    ) -> Any:
        is_of_cell = getattr(fn, "__module__", None) == "__main__"
        if not place.group_id and (not is_of_cell or start_method == "fork"):
            return originals[1](fn, args, nprocs, join, daemon, start_method)
        _check(place, nprocs, "torch.multiprocessing.spawn(nprocs={n})")
        fn(place.rank, *args)
        return None if join else _Ended()

    for original in originals:
        replace_everywhere(original, _named_as(original, start))


def _named_as(original: Callable[..., Any], start: Callable[..., Any]) -> Callable[..., Any]:
    """What is found by its name when the next attempt of this process replaces it."""

    @functools.wraps(original)
    def replacement(*args: Any, **options: Any) -> Any:
        return start(*args, **options)

    return replacement


def _replace_torchrun(place: RankPlace) -> None:
    launch: Any = sys.modules["torch.distributed.launcher.api"].__dict__["elastic_launch"]

    def call(self: Any, *args: Any) -> dict[int, Any]:
        config = self._config
        n_processes = config.nproc_per_node * config.max_nodes
        _check(place, n_processes, "a launch of {n} processes")
        return {place.rank: self._entrypoint(*args)}

    launch.__call__ = call


def _check(place: RankPlace, n: int, what: str) -> None:
    if n == place.world_size:
        return
    raise SpecError(
        f"{what.format(n=n)} in a cell of {format_counted(place.world_size, 'rank')}: the ranks "
        f"are these processes already; ask for as many in the first line (-n {n}, in a "
        f"search --ranks-per-trial {n}), or pass world_size() for the number"
    )
