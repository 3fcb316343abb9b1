"""Runs of cells whose record is on disk, with the notebook that they come from; no cluster ran."""

from __future__ import annotations

import itertools
import json
import linecache
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import yaml

from jupyter_ddl.ledger.writer import LedgerWriter
from jupyter_ddl.protocol.events import (
    AttemptFinished,
    AttemptStarted,
    Event,
    RunFinished,
    RunStarted,
    RunSubmitted,
    TrialCreated,
)
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.protocol.space import ParamValue
from jupyter_ddl.standalone.export import export_program
from jupyter_ddl.store.blobs import keep_blobs
from jupyter_ddl.store.paths import blob_dirs, ledger_path, private_dir, run_dir
from tests.unit.cell.cell_makers import compiled

__all__ = ["IMAGE", "executed", "exported", "is_of", "notebook_of", "record", "reports"]

IMAGE = "registry.example/team/train:1"

_count = itertools.count()


class _Shell:
    """What tells IPython's cells from files."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.compile = SimpleNamespace(format_code_name=self._format)

    def _format(self, filename: str) -> tuple[str, str] | None:
        return ("Cell", f"In[{self.names[filename]}]") if filename in self.names else None

    def get_ipython(self) -> _Shell:
        return self


def notebook_of(*cells: str, **names: Any) -> dict[str, Any]:
    """A notebook's globals after these cells, whose texts are known as IPython knows them."""
    shell = _Shell()
    namespace: dict[str, Any] = {"__name__": "__main__", "__builtins__": __builtins__, **names}
    namespace["get_ipython"] = shell.get_ipython
    for number, text in enumerate(cells, 1):
        filename = f"<cell {next(_count)}>"
        shell.names[filename] = number
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
        exec(compile(text, filename, "exec"), namespace)
    return namespace


def record(
    line: str,
    cell: str,
    namespace: dict[str, Any] | None = None,
    params: Mapping[str, ParamValue] | None = None,
    folder: Path | None = None,
    **changes: Any,
) -> RunSpec:
    """A finished run with one trial; ``changes`` are fields of its spec."""
    draft = compiled(line, cell, namespace or notebook_of(), folder)
    run_id = f"r{next(_count)}"
    spec = msgspec.structs.replace(draft.spec, run_id=run_id, cluster="local", **changes)
    keep_blobs(draft.blobs, blob_dirs())
    private_dir(run_dir(run_id))
    events: list[Event] = [RunSubmitted(spec, 1.0), RunStarted(1.0, 1, 1, 1, 42)]
    if params is not None:
        events += [
            TrialCreated(0, dict(params), 2.0),
            AttemptStarted(0, 1, 2.0, "w", 77, "a.log", 0),
            AttemptFinished(0, 1, "complete", 3.0, 1.0, 0.25),
        ]
    with LedgerWriter.open(ledger_path(run_id), create=True) as ledger:
        ledger.append([*events, RunFinished(4.0, "complete")])
    return spec


def exported(path: Path, run_id: str, kind: str, **options: Any) -> list[dict[str, Any]]:
    """The objects in the file of a form for ``kubectl``."""
    export_program(run_id, path, kind, **{"image": IMAGE, **options})
    return [*yaml.safe_load_all(path.read_text())]


def is_of(model: Any, made: dict[str, Any]) -> None:
    """Refuse what a class of ``kubeflow_trainer_api.models`` does not have, at any depth."""
    assert json.loads(model.from_dict(made).to_json()) == made


def executed(path: Path, *arguments: str, ranks: int = 1) -> str:
    """What a program prints, in a process where jupyter_ddl can't be imported."""
    blocked = path.parent / "blocked" / "jupyter_ddl"
    blocked.mkdir(parents=True, exist_ok=True)
    (blocked / "__init__.py").write_text("raise ImportError('a program needs no jupyter_ddl')\n")
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    done = subprocess.run(
        [sys.executable, *(launcher if ranks > 1 else []), str(path), *arguments],
        cwd=path.parent,
        env={**os.environ, "PYTHONPATH": str(blocked.parent), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def reports(folder: Path, name: str = "reports.jsonl") -> list[dict[str, Any]]:
    """The lines that a program has written."""
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]
