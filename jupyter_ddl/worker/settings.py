"""What a cluster tells each of its workers about rank processes."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

__all__ = ["WorkerSettings", "telemetry_interval_s"]

_INTERVAL_VARIABLE = "JUPYTER_DDL_TELEMETRY_INTERVAL"
_DEFAULT_INTERVAL_S = 1.0
_MIN_INTERVAL_S = 0.1


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
    overlay: str = ""
    """Directory of packages that ranks find before all others; empty for none."""
    telemetry_topic: str = ""
    """Dask topic that samples of telemetry are published on."""
    telemetry_interval_s: float = 0.0
    """Seconds between samples; 0: none are taken."""
    shares_files: bool = True
    """Whether the worker sees the controller's run directories and blobs."""
    keeps_http: bool = False
    """Whether Dask's HTTP server stays: that of a worker which is somebody else's."""


def telemetry_interval_s(environ: Mapping[str, str]) -> float:
    """Seconds between samples as the environment says, by default 1; 0 switches them off."""
    try:
        wanted = float(environ.get(_INTERVAL_VARIABLE, _DEFAULT_INTERVAL_S))
    except ValueError:
        return _DEFAULT_INTERVAL_S
    if not math.isfinite(wanted):
        return _DEFAULT_INTERVAL_S
    return 0.0 if wanted <= 0 else max(_MIN_INTERVAL_S, wanted)
