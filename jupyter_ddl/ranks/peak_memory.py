"""The most main memory that this process has held."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

__all__ = ["peak_memory_bytes"]

_STATUS = Path("/proc/self/status")


def peak_memory_bytes() -> int:
    """Resident, since the process began.

    Where Linux tells it, the process's own: what ``getrusage`` says there may be that of a larger
    one which has started it.
    """
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    told = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return told if sys.platform == "darwin" else told * 1024
