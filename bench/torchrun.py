"""Runs one script on two ranks: under torchrun, and as a cell of ``%%distribute ddp``."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

__all__ = ["as_cell", "cluster_of_two", "figures", "under_torchrun"]

_SCRIPTS = Path(__file__).resolve().parent / "scripts"
_N_RANKS = 2
_TIMEOUT_S = 120.0


@contextlib.contextmanager
def cluster_of_two() -> Iterator[None]:
    """A cluster for :func:`as_cell`; it stays up, and idle, while torchrun runs."""
    import torch  # noqa: F401 - as in the user's kernel; zygotes import what the kernel has

    from jupyter_ddl.client.clusters import start_cluster

    cluster = start_cluster(n_workers=_N_RANKS)
    try:
        yield
    finally:
        cluster.stop()


def under_torchrun(script: str) -> tuple[float, str]:
    """When it was called (Unix seconds), and all that the ranks printed."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    called_at_s = time.time()
    done = subprocess.run(
        [*command, f"--nproc-per-node={_N_RANKS}", str(_SCRIPTS / script)],
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=True,
    )
    return called_at_s, done.stdout


def as_cell(script: str) -> tuple[float, str]:
    """The same for a run on the current cluster; the call of ``submit`` counts."""
    from jupyter_ddl.cell.draft import CellContext
    from jupyter_ddl.client.submit import submit
    from jupyter_ddl.verbs.ddp import Ddp

    source = (_SCRIPTS / script).read_text()
    context = CellContext(cell_number=None, notebook_dir=Path.cwd())
    called_at_s = time.time()
    verb, options = Ddp.from_python({"n_ranks": _N_RANKS, "backend": "gloo"})
    run = submit(verb.compile(source, {}, context, options), cell=source)
    run.wait(_TIMEOUT_S)
    return called_at_s, run.logs()


def figures(text: str, word: str) -> list[float]:
    """The figures behind ``word`` in what the ranks printed, one per rank."""
    # Two ranks write to one pipe: their lines may run into each other.
    found = [float(figure) for figure in re.findall(rf"{word} (\d+\.\d+)", text)]
    if len(found) != _N_RANKS:
        raise ValueError(f"{_N_RANKS} ranks should have printed {word}: {text[-500:]!r}")
    return found
