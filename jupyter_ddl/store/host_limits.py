"""What this process may use of its host: cgroup quotas and CPU affinity, not the host's size.

Both cgroup versions are read, and every level from the process's own group up to the root, since
batch systems and service managers set limits on groups between the two.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec
import psutil

__all__ = ["HostLimits", "host_limits"]

T = TypeVar("T")

_PROC = Path("/proc/self/cgroup")
_ROOT = Path("/sys/fs/cgroup")


class HostLimits(msgspec.Struct, frozen=True):
    """CPUs (at least 1) and memory that may be used by this process and its children."""

    cpus: int
    memory_bytes: int


def host_limits(proc: Path = _PROC, root: Path = _ROOT) -> HostLimits:
    """Read the limits as they are now.

    Parameters
    ----------
    proc : Path
        The process's ``cgroup`` file.
    root : Path
        Where the cgroup file systems are mounted.
    """
    groups = list(_groups(proc, root))
    quotas = [quota for group in groups if (quota := _cpu_quota(group)) is not None]
    memory = [limit for group in groups if (limit := _memory_limit(group)) is not None]
    cpus = min([float(_n_affine()), *quotas])
    return HostLimits(
        cpus=max(1, math.floor(cpus)),
        memory_bytes=min([psutil.virtual_memory().total, *memory]),
    )


def _n_affine() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _groups(proc: Path, root: Path) -> Iterator[Path]:
    """Directories of the process's groups and all groups above them."""
    try:
        lines = proc.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        for mount in _mounts(root, controllers):
            # Without a cgroup namespace a container sees a path of its host: then the mount
            # itself is the container's group.
            group = mount / path.lstrip("/")
            if not group.is_dir():
                group = mount
            while True:
                yield group
                if group == mount:
                    break
                group = group.parent


def _mounts(root: Path, controllers: str) -> list[Path]:
    """Where a hierarchy may be mounted; version 2 has no controller names."""
    if not controllers:
        return [path for path in (root, root / "unified") if path.is_dir()]
    names = {controllers, *controllers.split(","), ",".join(reversed(controllers.split(",")))}
    return [root / name for name in sorted(names) if (root / name).is_dir()]


def _cpu_quota(group: Path) -> float | None:
    words = _read(group / "cpu.max", str.split)
    if words is not None and len(words) == 2:
        return None if words[0] == "max" else int(words[0]) / int(words[1])
    quota = _read(group / "cpu.cfs_quota_us", int)
    period = _read(group / "cpu.cfs_period_us", int)
    return quota / period if quota is not None and period and quota > 0 else None


def _memory_limit(group: Path) -> int | None:
    text = _read(group / "memory.max", str.strip)
    if text is not None:
        return None if text == "max" else int(text)
    # Version 1 writes "no limit" as a number near 2**63, which the host's memory undercuts.
    return _read(group / "memory.limit_in_bytes", int)


def _read(path: Path, parse: Callable[[str], T]) -> T | None:
    with contextlib.suppress(OSError, ValueError):
        return parse(path.read_text())
    return None
