"""A fake NVML that real pynvml loads: built from C, told by a file what to say."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

__all__ = ["FakeNvml"]


class FakeNvml:
    """Builds the library in ``directory``; skips the test where there is no C compiler."""

    def __init__(self, directory: Path) -> None:
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            pytest.skip("the fake NVML is built from C, and there is no C compiler")
        source = Path(__file__).with_name("nvml.c")
        library = directory / "libnvidia-ml.so.1"
        flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Werror"]
        subprocess.run([compiler, *flags, "-o", str(library), str(source)], check=True)
        self._directory = directory
        self._control = directory / "control"
        self.tell(gpus=2, utilization=80, memory_mb=8192)

    def tell(self, **settings: int) -> None:
        """Replace what it says; see ``nvml.c`` for the keys."""
        text = "".join(f"{key}={value}\n" for key, value in settings.items())
        new = self._control.with_suffix(".new")
        new.write_text(text)
        os.replace(new, self._control)

    def variables(self) -> dict[str, str]:
        """The environment of a process that is to load it."""
        return {"LD_LIBRARY_PATH": str(self._directory), "FAKE_NVML": str(self._control)}
