"""A backend whose controllers live "next door": on this host, in a home of their own.

Nothing there is seen from here but a socket, as with a controller in a pod.  That controller is a
plain local one, so all that tests of mirrors need of Kubernetes is here without it.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jupyter_ddl.backends.base import (
    Backend,
    BackendPlugin,
    ControllerHost,
    FoundCluster,
    OnPhase,
    settings_of,
)
from jupyter_ddl.errors import ClusterError
from jupyter_ddl.protocol.cluster import ClusterSpec
from tests.leaks import end_processes, new_home, processes_of
from tests.until import until

__all__ = ["Door", "NextDoor", "opened_door"]

_PLACE = "JUPYTER_DDL_TEST_NEXT_DOOR"
_START_S = 60.0


class NextDoorSettings(msgspec.Struct, frozen=True):
    """Where its home is."""

    place: str = ""


class NextDoor(BackendPlugin):
    """``%cluster start nextdoor``."""

    settings_type = NextDoorSettings
    has_controller_host = True

    def controller_host(self, spec: ClusterSpec) -> ControllerHost:
        return NextDoorHost(spec)

    def make(self, spec: ClusterSpec) -> Backend:
        raise ClusterError("its controllers have the local backend")

    async def find_elsewhere(self) -> list[FoundCluster]:
        door = Door(Path(os.environ[_PLACE]))
        return [
            FoundCluster("nextdoor", path.stem, "the house next door", 1, "", path.stem)
            for path in sorted(door.runtime.glob("*.json"))
        ]


class NextDoorHost(ControllerHost):
    """Used in the mirror."""

    def __init__(self, spec: ClusterSpec) -> None:
        self._spec = spec
        place = settings_of(spec, NextDoorSettings).place or os.environ[_PLACE]
        self._door = Door(Path(place))

    async def start(self, on_phase: OnPhase) -> None:
        if self._door.is_open(self._spec.name):
            raise ClusterError(f"a cluster named {self._spec.name!r} is next door")
        on_phase("knocking next door")
        self._door.note(self._spec).write_bytes(msgspec.json.encode(self._spec))
        coming = asyncio.ensure_future(asyncio.to_thread(self._door.start, self._spec))
        try:
            async with asyncio.timeout(self._spec.start_timeout_s):
                await asyncio.shield(coming)
        except BaseException as error:
            await asyncio.wait({coming})  # who is not in yet can't be sent away
            late = coming.exception()
            await self.end()
            if isinstance(late, ClusterError):
                raise late from None
            if isinstance(error, TimeoutError):
                raise ClusterError("nobody next door opened in time") from None
            raise

    async def join(self) -> ClusterSpec | None:
        note = self._door.note(self._spec)
        return msgspec.json.decode(note.read_bytes(), type=ClusterSpec) if note.exists() else None

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_unix_connection(self._door.runtime / f"{self._spec.name}.sock")

    async def missing(self) -> str:
        return "" if self._door.note(self._spec).exists() else "nobody lives next door any more"

    async def end(self) -> None:
        self._door.note(self._spec).unlink(missing_ok=True)
        await asyncio.to_thread(self._door.end, self._spec.name)

    async def close(self) -> None:
        return


class Door:
    """The home next door, for the plug-in and for tests."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.data = root / "home"
        self.runtime = root / "runtime" / "jupyter_ddl"

    def note(self, spec: ClusterSpec) -> Path:
        """What says that a cluster is there, whether its controller lives or not."""
        return self.root / f"{spec.name}.spec"

    def is_open(self, name: str) -> bool:
        return (self.root / f"{name}.spec").exists()

    def start(self, spec: ClusterSpec) -> None:
        """Start a controller, and return when it serves."""
        own = msgspec.structs.replace(spec, backend="local", settings={})
        with (self.root / "log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "jupyter_ddl.controller"],
                env={**os.environ, **self._variables()},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                cwd="/",
            )
        assert process.stdin is not None
        assert process.stdout is not None
        with process.stdin as stdin, process.stdout as told:
            stdin.write(msgspec.json.encode(own))
            stdin.close()
            for line in told:
                message = json.loads(line)
                if message["kind"] == "error":
                    process.wait(_START_S)
                    raise ClusterError(message["message"])
                if message["kind"] == "ready":
                    threading.Thread(target=process.wait, daemon=True).start()
                    return
        raise ClusterError("the controller next door ended while it started")

    def start_again(self, name: str) -> None:
        """What Kubernetes does to a pod that was lost."""
        self.start(msgspec.json.decode((self.root / f"{name}.spec").read_bytes(), type=ClusterSpec))

    def _variables(self) -> dict[str, str]:
        return {
            "JUPYTER_DDL_HOME": str(self.data),
            "JUPYTER_RUNTIME_DIR": str(self.root / "runtime"),
            "JUPYTER_DDL_MEMORY_DIR": str(self.root / "memory"),
        }

    def pid(self, name: str) -> int:
        """Of the controller."""
        facts: dict[str, Any] = json.loads((self.runtime / f"{name}.json").read_bytes())
        return int(facts["process"]["pid"])

    def end(self, name: str, signum: int = signal.SIGTERM) -> None:
        """End a controller and wait until it is gone; without effect when there is none."""
        try:
            pid = self.pid(name)
            os.kill(pid, signum)
        except (FileNotFoundError, ProcessLookupError):
            return
        until(lambda: not _is_running(pid), _START_S, "the end of the controller next door")

    def lose_disk(self) -> None:
        """What happens to an ``emptyDir`` with its pod."""
        shutil.rmtree(self.data, ignore_errors=True)


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@contextmanager
def opened_door(monkeypatch: pytest.MonkeyPatch) -> Iterator[Door]:
    """The plug-in installed for this process and those that it starts; nothing is left after it."""
    with new_home() as there:
        facts = there.root / "packages" / "next_door-1.dist-info"
        facts.mkdir(parents=True)
        (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: next-door\nVersion: 1\n")
        (facts / "entry_points.txt").write_text(
            f"[jupyter_ddl.backends]\nnextdoor = {NextDoor.__module__}:{NextDoor.__name__}\n"
        )
        found = f"{facts.parent}{os.pathsep}{Path(__file__).parents[3]}"
        monkeypatch.setenv("PYTHONPATH", found)
        monkeypatch.syspath_prepend(str(facts.parent))
        monkeypatch.setenv(_PLACE, str(there.root))
        try:
            yield Door(there.root)
            until(lambda: not processes_of(there), _START_S, "nobody left next door")
        finally:
            end_processes(there)
