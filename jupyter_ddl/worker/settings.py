"""What a cluster tells each of its workers about rank processes."""

from __future__ import annotations

import msgspec

__all__ = ["WorkerSettings"]


class WorkerSettings(msgspec.Struct, frozen=True):
    """Settings of the plugin; the same on every worker of a cluster."""

    owner_token: str
    """Stands in the environment of every process below the workers of one cluster."""
    cpus_per_slot: int = 1
    """Threads that numerical libraries use in a rank."""
    prewarm: tuple[str, ...] = ()
    """Installed packages that the zygote imports ahead of need."""
    rank_memory_bytes: int | None = None
    """A rank whose process tree holds more is ended with failure kind ``memory``."""
