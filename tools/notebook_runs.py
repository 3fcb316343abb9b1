"""Executes notebooks as readers do, each with a kernel, clusters and directories of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "notebooks"
_MEMORY = Path("/dev/shm")
_CELL_TIMEOUT_S = 900
_STOP = (
    "from jupyter_ddl.client.clusters import list_clusters as _all\n"
    "for _each in _all():\n    _each.stop()\n"
)


@dataclass
class Executed:
    """A notebook with its outputs.

    Attributes
    ----------
    seconds : list of float
        How long each code cell took.
    folder : Path
        Where it ran; gone by now.
    kernel_s : float
        How long its kernel took to start.
    load : float
        Processes that wanted a CPU in the minute before, of others mostly.
    """

    notebook: Any
    folder: Path
    kernel_s: float = 0.0
    load: float = 0.0
    seconds: list[float] = field(default_factory=list)


def execute(path: Path, last: str | None = None) -> Executed:
    """Execute one notebook from its first cell to its last.

    Parameters
    ----------
    last : str, optional
        Leave off behind the first cell that begins so.

    Raises
    ------
    nbclient.exceptions.CellExecutionError
        A cell raised.
    """
    with _home() as folder:
        # A copy of all of them: one may use what lies beside it.
        work = Path(shutil.copytree(path.parent, folder / "notebooks"))
        notebook: Any = nbformat.read(work / path.name, as_version=4)  # type: ignore[no-untyped-call]
        done = Executed(notebook, folder, load=os.getloadavg()[0])
        client = NotebookClient(
            notebook,
            timeout=_CELL_TIMEOUT_S,
            kernel_name="python3",
            resources={"metadata": {"path": str(work)}},
            coalesce_streams=True,
            extra_arguments=["--IPKernelApp.log_level=ERROR"],
        )
        began_s = time.monotonic()
        with client.setup_kernel():
            done.kernel_s = time.monotonic() - began_s
            try:
                for index, cell in enumerate(notebook.cells):
                    began_s = time.monotonic()
                    client.execute_cell(cell, index)
                    if cell.cell_type == "code":
                        done.seconds.append(time.monotonic() - began_s)
                        if last is not None and cell.source.startswith(last):
                            break
            finally:
                stop = nbformat.v4.new_code_cell(_STOP)  # type: ignore[no-untyped-call]
                notebook.cells.append(stop)
                client.execute_cell(stop, len(notebook.cells) - 1, store_history=False)
                notebook.cells.pop()
        return done


@contextlib.contextmanager
def _home() -> Iterator[Path]:
    """Directories that no other cluster or run knows of, and the variables that lead there."""
    # Not below a long name: the addresses of Unix sockets hold 107 bytes only.
    folder = Path(tempfile.mkdtemp(prefix="ddl-nb-"))
    memory = tempfile.mkdtemp(prefix="ddl-nb-", dir=_MEMORY if _MEMORY.is_dir() else folder)
    wanted = {
        "JUPYTER_DDL_HOME": str(folder / "data"),
        "JUPYTER_DDL_MEMORY_DIR": memory,
        "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
        "IPYTHONDIR": str(folder / "ipython"),
    }
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield folder
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        shutil.rmtree(memory, ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)
