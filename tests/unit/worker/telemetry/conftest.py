"""A process with the fake NVML, which reads its GPUs when it is asked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fake_nvml import FakeNvml

_PROGRAM = """
import json, os, sys
import msgspec
from jupyter_ddl.worker.telemetry.gpu_meter import GpuReader
from jupyter_ddl.worker.telemetry.gpu_meter import GpuWatch
from jupyter_ddl.store.nvml import inventory

now = 0.0
clock = lambda: now
watch = GpuWatch(GpuReader(os.environ, clock).read, clock)
for line in sys.stdin:
    asked = json.loads(line)
    os.environ.update(asked["environ"])
    now += asked["pass_s"]
    found = watch.latest(asked["timeout_s"]) if asked["read"] else inventory()
    print(msgspec.json.encode(found).decode(), flush=True)
"""


class GpuProcess:
    """Loads the fake through pynvml, as a worker does."""

    def __init__(self, fake: FakeNvml) -> None:
        self.fake = fake
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM],
            env={**os.environ, **fake.variables()},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def inventory(self, **environ: str) -> dict[str, Any]:
        return self._ask(read=False, environ=environ)

    def read(self, timeout_s: float = 5.0, pass_s: float = 1.0) -> dict[str, Any]:
        """The next reading; for the reader, ``pass_s`` have passed since the last one."""
        return self._ask(read=True, timeout_s=timeout_s, pass_s=pass_s)

    def _ask(
        self,
        *,
        read: bool,
        environ: dict[str, str] | None = None,
        timeout_s: float = 5.0,
        pass_s: float = 0.0,
    ) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        asked = {"read": read, "environ": environ or {}, "timeout_s": timeout_s, "pass_s": pass_s}
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        return found

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def gpus(tmp_path: Path) -> Iterator[GpuProcess]:
    process = GpuProcess(FakeNvml(tmp_path))
    yield process
    process.close()
