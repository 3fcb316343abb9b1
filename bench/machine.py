"""The machine that the figures come from, and how quiet it was."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from bench.harness import ROOT

__all__ = ["describe", "quietness", "versions"]

_PACKAGES = ("jupyter_ddl", "distributed", "optuna", "torch", "numpy", "msgspec", "ipython")
_PEER_PACKAGES = ("ray", "optuna", "distributed", "ipyparallel")
_SPIN_STEPS = 400_000
_N_SPINS = 5


def describe() -> dict[str, Any]:
    """Code, CPU, memory, kernel and disk, as far as figures depend on them."""
    return {
        "commit": _commit(),
        "cpu": _cpu_model(),
        "cpus": len(os.sched_getaffinity(0)),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "disk": f"{_filesystem(tempfile.gettempdir())} (fsync of 4 kB: {_fsync_ms():.2f} ms)",
    }


def versions(peers_python: Path) -> dict[str, dict[str, str]]:
    """Versions of the packages that matter, here and in the peers' environment."""
    code = (
        "import importlib.metadata as m, json\n"
        f"print(json.dumps({{n: m.version(n) for n in {_PEER_PACKAGES!r} "
        "if any(True for _ in m.distributions(name=n))}))"
    )
    peers: dict[str, str] = {}
    if peers_python.exists():
        done = subprocess.run(
            [str(peers_python), "-c", code], capture_output=True, text=True, timeout=60, check=False
        )
        peers = json.loads(done.stdout or "{}")
    return {"here": {name: _version(name) for name in _PACKAGES}, "peers": peers}


def quietness() -> dict[str, float]:
    """Load average, share of the CPUs that others use, and the time of a fixed loop.

    The loop takes the same time on a quiet machine always; its largest over its smallest time is
    how much the figures beside it may be off.
    """
    busy = psutil.cpu_percent(interval=1.0)
    spins = [_spin() for _ in range(_N_SPINS)]
    return {
        "load_1min": round(os.getloadavg()[0], 2),
        "others_cpu_percent": busy,
        "spin_min_ms": round(min(spins) * 1e3, 2),
        "spin_max_ms": round(max(spins) * 1e3, 2),
    }


def _spin() -> float:
    started = time.perf_counter()
    total = 0
    for number in range(_SPIN_STEPS):
        total += number
    return time.perf_counter() - started


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _commit() -> str:
    """Short id of the commit that is measured; ``+`` when tracked files differ from it."""
    git = ["git", "-C", str(ROOT)]
    try:
        head = subprocess.run(
            [*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
        ).stdout.strip()
        changed = subprocess.run(
            [*git, "status", "--porcelain", "-uno"], capture_output=True, text=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head + ("+" if changed else "")


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def _filesystem(path: str) -> str:
    mounts = [m for m in psutil.disk_partitions(all=True) if path.startswith(m.mountpoint)]
    return max(mounts, key=lambda m: len(m.mountpoint)).fstype if mounts else "unknown"


def _fsync_ms() -> float:
    """Median over 20 writes: what a durable record costs at least."""
    times = []
    with tempfile.NamedTemporaryFile() as file:
        for _ in range(20):
            file.write(b"x" * 4096)
            file.flush()
            started = time.perf_counter()
            os.fsync(file.fileno())
            times.append(time.perf_counter() - started)
    return sorted(times)[10] * 1e3
