"""A cluster at one moment, as ``%cluster`` and the panel show it."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from jupyter_ddl.spec.facts import EnvironmentStatus

__all__ = ["ClusterState", "ClusterStatus", "GroupStatus", "RankStatus", "WorkerStatus"]

ClusterState: TypeAlias = Literal["starting", "ready", "degraded", "stopping"]


class WorkerStatus(msgspec.Struct, frozen=True):
    name: str
    address: str
    host: str
    n_slots: int
    n_busy: int


class RankStatus(msgspec.Struct, frozen=True):
    """One rank of a persistent group."""

    rank: int
    worker: str
    host: str
    pid: int
    device: str
    log: str
    """Relative to ``<run_dir>/logs``."""
    log_end: int
    """Where the output of the next cell begins."""


class GroupStatus(msgspec.Struct, frozen=True):
    """A persistent group."""

    group_id: str
    """Also the name of its run directory."""
    name: str
    started_at_s: float
    n_cells: int
    is_busy: bool
    ranks: tuple[RankStatus, ...]
    has_process_group: bool = False

    @property
    def n_ranks(self) -> int:
        return len(self.ranks)


class ClusterStatus(msgspec.Struct, frozen=True):
    name: str
    backend: str
    state: ClusterState
    controller_pid: int
    scheduler_address: str
    started_at_s: float
    workers: tuple[WorkerStatus, ...]
    n_wanted: int
    """Workers asked for; fewer are there while some start."""
    cpus_per_worker: int
    memory_per_worker_bytes: int | None
    active_runs: tuple[str, ...]
    idle_timeout_s: float
    idle_left_s: float | None
    """Seconds until the cluster ends for being idle; None while a run is active."""
    age_left_s: float
    adapt: tuple[int, int] | None = None
    groups: tuple[GroupStatus, ...] = ()
    """Persistent groups; their ids are among ``active_runs``."""
    environment: EnvironmentStatus | None = None
    """What the last comparison of a kernel with the workers came to; None before the first."""
    gpus: str = ""
    """Those of all workers in a few words, or why there are none."""
    trouble: str = ""
    """Why the state is ``degraded``, in one line; empty in others."""

    @property
    def n_slots(self) -> int:
        return sum(worker.n_slots for worker in self.workers)
