"""What a cluster is to be: given to a new controller on its standard input."""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["MAX_WORKERS", "SPEC_FILE", "ClusterSpec"]

MAX_WORKERS = 1024
"""Most workers that a cluster is started with, or scaled to."""


SPEC_FILE = "spec.json"
"""Where a controller elsewhere finds it, in the folder that it is started with."""


class ClusterSpec(msgspec.Struct, frozen=True):
    """A cluster to start.  ``None`` means: as the host (its cgroup, not its CPU count) allows."""

    name: str = "local"
    backend: str = "local"
    n_workers: int | None = None
    cpus_per_worker: int = 1
    """CPUs of a worker's one slot; the threads of numerical libraries in a rank."""
    memory_per_worker_bytes: int | None = None
    """A rank whose process tree uses more is ended with failure kind ``memory``."""
    idle_timeout_s: float = 1800.0
    max_age_s: float = 86400.0
    prewarm: tuple[str, ...] = ()
    """Installed packages that the zygotes import ahead of the first run."""
    start_timeout_s: float = 60.0
    worker_timeout_s: float = 30.0
    """A worker that has been silent for so long is given up, and its trials run elsewhere."""
    shrink_after_s: float = 30.0
    """An adaptive cluster keeps workers that have nothing to do for so long."""
    settings: dict[str, Any] = {}
    """The backend's own part: its options, which only the backend reads."""
