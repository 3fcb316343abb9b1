"""Starts processes in namespaces of their own, or with a clock that was set: as root only."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

__all__ = ["PID", "TIME", "apart", "on_another_host", "python", "with_clock_set", "without_locks"]

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


def on_another_host(folder: Path, name: str) -> list[str]:
    """The same for a command that is to be on another host, which sees the same files."""
    path = folder / f"boot_id_of_{name}"
    path.write_text(f"{uuid.uuid4()}\n")
    mounting = (
        f'mount --bind {path} /proc/sys/kernel/random/boot_id && hostname {name} && exec "$@"'
    )
    return [*apart("--mount", "--uts"), "sh", "-c", mounting, "sh"]


def without_locks() -> list[str]:
    """The same for a command, and all that it starts, which gets no lock of any file system."""
    number = {"x86_64": 73, "aarch64": 32}.get(platform.machine())
    if number is None:
        pytest.skip("the number of flock is not known here")
    command = [sys.executable, "-c", _NO_LOCKS, str(number)]
    try:
        subprocess.run([*command, "true"], check=True, capture_output=True)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no filter of system calls can be made here: {error}")
    return command


_NO_LOCKS = """
import ctypes, errno, os, struct, sys
rules = [(0x20, 0, 0, 0), (0x15, 0, 1, int(sys.argv[1])), (6, 0, 0, 0x50000 | errno.ENOLCK),
         (6, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in rules))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(rules), ctypes.addressof(code)))
prctl = ctypes.CDLL(None, use_errno=True).prctl
assert prctl(38, 1, 0, 0, 0) == 0 and prctl(22, 2, program, 0, 0) == 0
os.execvp(sys.argv[2], sys.argv[2:])
"""
"""A filter of system calls (seccomp) that is inherited: flock fails with ENOLCK."""


def python(source: str, *arguments: str) -> list[str]:
    """The rest of the command: Python source, which finds our tests, too."""
    path = str(Path(__file__).parents[1])
    begin = f"import sys; sys.path.insert(0, {path!r})\n"
    return [sys.executable, "-c", begin + source, *arguments]
