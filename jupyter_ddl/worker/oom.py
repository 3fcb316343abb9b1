"""Evidence that the kernel's out-of-memory killer was at work."""

from __future__ import annotations

from pathlib import Path

__all__ = ["oom_kill_count"]

_COUNTER = "oom_kill"


def oom_kill_count() -> int | None:
    """Kills by the out-of-memory killer so far; a rise explains a SIGKILL nobody sent.

    Counts this process's memory cgroup and the whole host.  None where neither can be read.
    """
    counts = [count for path in _counter_files() if (count := _read_counter(path)) is not None]
    return sum(counts) if counts else None


def _counter_files() -> list[Path]:
    files = [Path("/proc/vmstat")]
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return files
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            files.append(Path(f"/sys/fs/cgroup{path}/memory.events"))
        elif "memory" in controllers.split(","):
            files.append(Path(f"/sys/fs/cgroup/memory{path}/memory.oom_control"))
    return files


def _read_counter(path: Path) -> int | None:
    try:
        text = path.read_text()
    except OSError:
        return None
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name == _COUNTER:
            return int(value)
    return None
