"""Programs as a rank gets them, executed in this process."""

from __future__ import annotations

import gc
import io
import os
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cloudpickle
import msgspec
import pytest

from jupyter_ddl.protocol.assignment import Assignment, TrialAssignment
from jupyter_ddl.protocol.events import AttemptFinished, RankEvent
from jupyter_ddl.protocol.program import CapturedName, ModuleFile, Placeholder, Program
from jupyter_ddl.ranks.program import LoadedProgram, load_program
from jupyter_ddl.ranks.stopping import StopFlag
from jupyter_ddl.store.blobs import put_blob
from jupyter_ddl.store.code_files import reduce_code

FILENAME = "In [12]"


@dataclass
class Rank:
    """A loaded program and everything that its trials emitted."""

    program: LoadedProgram
    assignment: Assignment
    stop: StopFlag = field(default_factory=StopFlag)
    events: list[RankEvent] = field(default_factory=list)

    def run(
        self,
        trial: int = 0,
        attempt: int = 1,
        params: dict[str, Any] | None = None,
        seed: int = 5,
        item: int | None = None,
        emit: Callable[[RankEvent], None] | None = None,
    ) -> AttemptFinished:
        given = TrialAssignment(trial, attempt, params or {}, seed, item)
        return self.program.run_trial(given, self.assignment, emit or self.events.append, self.stop)

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


def pickled(values: dict[str, Any], min_buffer_bytes: int = 1024) -> tuple[bytes, list[Any]]:
    """One stream with one memo, large buffers beside it."""
    stream, buffers = io.BytesIO(), []

    def keep(buffer: Any) -> bool:
        view = buffer.raw()
        if view.nbytes < min_buffer_bytes:
            return True
        buffers.append(view)
        return False

    pickler = _Pickler(stream, protocol=5, buffer_callback=keep)
    for value in values.values():
        pickler.dump(value)
    return stream.getvalue(), buffers


class _Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]
    """Code keeps its file, as what a cell captures does."""

    def reducer_override(self, obj: Any) -> Any:
        is_code = isinstance(obj, types.CodeType)
        return reduce_code(obj) if is_code else super().reducer_override(obj)


def placeholder(source: str, name: str, **fields: Any) -> Placeholder:
    line = next(
        i
        for i, text in enumerate(source.splitlines(), 1)
        if text.startswith((f"{name} =", f"{name}:"))
    )
    return Placeholder(name, line, 0, **fields)


class Host:
    """Stores programs in blobs and loads them."""

    def __init__(self, directory: Path) -> None:
        self.run_dir = directory / "run"
        self.blobs = directory / "blobs"
        self.run_dir.mkdir()
        self.blobs.mkdir()

    def put(self, data: Any) -> str:
        return put_blob(data, [self.blobs])

    def assignment(self, program: Program, **fields: Any) -> Assignment:
        digest = self.put(msgspec.msgpack.encode(program))
        return Assignment(
            "run-1", "a-1", digest, (), str(self.run_dir), (str(self.blobs),), "topic", **fields
        )

    def load(
        self,
        source: str,
        *,
        captures: dict[str, Any] | None = None,
        stream: tuple[bytes, list[Any]] | None = None,
        modules: dict[str, str] | None = None,
        program: dict[str, Any] | None = None,
        **assignment: Any,
    ) -> Rank:
        fields = dict(program or {})
        if captures:
            payload, buffers = stream or pickled(captures)
            fields["captures"] = tuple(CapturedName(name, "any", 0) for name in captures)
            fields["payload"] = self.put(payload)
            fields["buffers"] = tuple(self.put(buffer) for buffer in buffers)
        if modules:
            fields["modules"] = tuple(
                ModuleFile(path, self.put(text.encode()), len(text))
                for path, text in modules.items()
            )
        given = self.assignment(Program(source, FILENAME, **fields), **assignment)
        return Rank(load_program(given), given)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    path, modules, environ, cwd = sys.path.copy(), set(sys.modules), dict(os.environ), Path.cwd()
    yield Host(tmp_path)
    gc.unfreeze()
    for name in set(sys.modules) - modules:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
    sys.path[:] = path
    # Trials put these back themselves; a test that left them changed must be seen.
    assert dict(os.environ) | {"PYTEST_CURRENT_TEST": ""} == environ | {"PYTEST_CURRENT_TEST": ""}
    assert Path.cwd() == cwd
