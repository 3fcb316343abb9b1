"""Starts processes in namespaces of their own, or with a clock that was set: as root only."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

__all__ = ["PID", "TIME", "apart", "python", "with_clock_set"]

PID = ("--pid", "--fork", "--mount-proc", "--kill-child")
"""As in a container: other pids, and none of the host's."""
TIME = ("--time", "--boottime", "86400", "--fork", "--kill-child")
"""Where the kernel tells other times since the boot."""


def apart(*flags: str) -> list[str]:
    """The beginning of a command that is to run in other namespaces; skips where it can't be."""
    command = ["unshare", *flags]
    try:
        subprocess.run([*command, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no namespaces can be made here: {error}")
    return command


def with_clock_set(folder: Path, seconds: int) -> list[str]:
    """The same for a command to which the host's clock was set forward after its boot.

    The kernel then tells another time of the boot; what it tells of processes stays.
    """
    told = Path("/proc/stat").read_text()
    shifted = re.sub(r"^btime (\d+)$", lambda m: f"btime {int(m[1]) + seconds}", told, flags=re.M)
    assert shifted != told
    path = folder / "stat"
    path.write_text(shifted)
    mounting = f'mount --bind {path} /proc/stat && exec "$@"'
    return [*apart("--mount"), "sh", "-c", mounting, "sh"]


def python(source: str, *arguments: str) -> list[str]:
    """The rest of the command: Python source, which finds our tests, too."""
    path = str(Path(__file__).parents[1])
    begin = f"import sys; sys.path.insert(0, {path!r})\n"
    return [sys.executable, "-c", begin + source, *arguments]
