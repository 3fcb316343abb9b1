"""A wall clock that can be set for some processes only, as if they were on a host of their own."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import pytest

__all__ = ["FakeClock"]


class FakeClock:
    """Builds the library in ``directory``; skips the test where there is no C compiler."""

    def __init__(self, directory: Path, offset_s: int) -> None:
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            pytest.skip("the fake clock is built from C, and there is no C compiler")
        source = Path(__file__).with_name("clock.c")
        directory.mkdir(exist_ok=True)
        self._library = directory / "libclock.so"
        flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Werror"]
        subprocess.run([compiler, *flags, "-o", str(self._library), str(source)], check=True)
        self._file = directory / "offset"
        self._file.write_bytes(bytes(8))
        self.set(offset_s)

    def set(self, offset_s: int) -> None:
        """Set the clock of the processes that have it, also of those that run."""
        with self._file.open("r+b") as file:
            file.write(struct.pack("q", offset_s))

    def variables(self) -> dict[str, str]:
        """The environment of a process that is to have it."""
        return {"LD_PRELOAD": str(self._library), "FAKE_CLOCK": str(self._file)}
