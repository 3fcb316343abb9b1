"""``make demo``: executes the quickstart notebook and shows in the terminal how it gets on.

The notebook runs in a real kernel, as it would in JupyterLab.  This process only watches: it tells
which section is being executed, and follows the runs of the notebook's kernel from their ledgers.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from jupyter_ddl.client.clusters import list_clusters
from jupyter_ddl.client.history import list_runs
from jupyter_ddl.client.run import Run
from jupyter_ddl.errors import JupyterDDLError
from jupyter_ddl.views import LiveDisplay, TerminalScreen

ROOT = Path(__file__).resolve().parent.parent
_CELL_TIMEOUT_S = 600
_POLL_S = 0.2


class Follower:
    """Draws the runs that appear from now on, one after the other, until :meth:`close`."""

    def __init__(self) -> None:
        self._seen = {summary.run_id for summary in list_runs()}
        self._run: Run | None = None
        self._live: LiveDisplay | None = None
        self.runs: list[Run] = []

    def adopt(self) -> bool:
        """Whether there is a new run to draw, and none that is still being drawn."""
        if self._run is not None:
            return False
        self._run = self._next()
        return self._run is not None

    def draw(self) -> None:
        """Draw what is new of the run in hand; its end is drawn once, and lets it go."""
        if self._run is None or self._live is None:
            return
        snapshot = self._run.encoded_snapshot()
        self._live.offer(snapshot)
        if snapshot.is_final:
            self._live.finish(snapshot)
            self._run = None

    def close(self) -> None:
        """Leave the last picture of a run that is still drawn."""
        self.draw()
        if self._run is not None and self._live is not None:
            self._live.finish()

    def _next(self) -> Run | None:
        for summary in reversed(list_runs()):
            if summary.run_id not in self._seen:
                self._seen.add(summary.run_id)
                run = Run(summary.run_id)
                self.runs.append(run)
                self._live = LiveDisplay(TerminalScreen())
                return run
        return None


class Execution(threading.Thread):
    """Executes a notebook in a kernel, away from the thread that draws."""

    def __init__(self, notebook: Any, folder: Path) -> None:
        super().__init__(name="notebook", daemon=True)
        self.error: BaseException | None = None
        self.cell = 0
        self._client = NotebookClient(
            notebook,
            timeout=_CELL_TIMEOUT_S,
            kernel_name="python3",
            resources={"metadata": {"path": str(folder)}},
            coalesce_streams=True,
            extra_arguments=["--IPKernelApp.log_level=ERROR"],
            on_cell_start=self._begin,
        )

    def run(self) -> None:
        try:
            self._client.execute()
        except BaseException as error:  # noqa: BLE001 - the main thread tells it
            self.error = error

    def _begin(self, cell: Any, cell_index: int) -> None:
        self.cell = cell_index


def main() -> int:
    """Exit status 0 when every cell succeeded."""
    options = _options()
    warnings.simplefilter("ignore")  # of the kernel's libraries; the notebook shows its own
    source, target = options.notebook, options.output
    notebook = nbformat.read(source, as_version=4)  # type: ignore[no-untyped-call]
    target.parent.mkdir(parents=True, exist_ok=True)
    print(f"Executing {_shown(source)} on a cluster of this machine.", flush=True)
    follower = Follower()
    began_s = time.monotonic()
    execution = Execution(notebook, source.parent)
    clusters = {cluster.name for cluster in list_clusters()}
    try:
        execution.start()
        _watch(execution, follower, notebook)
    finally:
        _stop_clusters(besides=clusters)
    nbformat.write(notebook, target)  # type: ignore[no-untyped-call]
    if execution.error is not None:
        return _failed(execution.error, target)
    print(f"\nDone in {time.monotonic() - began_s:.0f} s.")
    _tell_best(follower.runs)
    print(f"Executed notebook: {_shown(target)}  (`make lab` opens the notebooks)")
    return 0


def _watch(execution: Execution, follower: Follower, notebook: Any) -> None:
    told = 0
    while execution.is_alive():
        # Read before drawing: a run of an earlier cell has ended, and its end is drawn first.
        current = execution.cell
        follower.draw()
        told = _tell_headings(notebook, told, current)
        if follower.adopt():
            told = _tell_headings(notebook, told, execution.cell)
            follower.draw()
        execution.join(_POLL_S)
    follower.close()


def _stop_clusters(besides: set[str]) -> None:
    """Also after a failed cell or an interrupt, nothing that the notebook started goes on."""
    for cluster in list_clusters():
        if cluster.name not in besides:
            print(f"Stopping cluster {cluster.name}.")
            cluster.stop()


def _tell_headings(notebook: Any, told: int, current: int) -> int:
    """Print the headings of the sections that have begun since the last look."""
    for cell in notebook.cells[told : current + 1]:
        if cell.cell_type == "markdown" and cell.source.startswith("#"):
            print(f"\n{cell.source.splitlines()[0].lstrip('# ')}", flush=True)
    return max(told, current + 1)


def _tell_best(runs: list[Run]) -> None:
    for run in runs:
        best, metric = run.best, run.snapshot().metric
        if best is not None:
            params = ", ".join(f"{name}={_short(value)}" for name, value in best.params.items())
            print(f"Best trial of run {run.id}: number {best.number}, {metric} = {best.value:.4f}")
            print(f"  {params}")


def _failed(error: BaseException, target: Path) -> int:
    reason = str(error).strip() if isinstance(error, CellExecutionError | JupyterDDLError) else ""
    print(f"\n{reason or repr(error)}", file=sys.stderr)
    print(f"\nThe notebook failed; as far as it came it is in {_shown(target)}.", file=sys.stderr)
    return 1


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _shown(path: Path) -> Path:
    """A path as a reader in the checkout would type it."""
    return path.relative_to(ROOT) if path.is_relative_to(ROOT) else path


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Execute a notebook, with progress.")
    default = ROOT / "notebooks" / "01_quickstart.ipynb"
    parser.add_argument("notebook", nargs="?", type=Path, default=default)
    parser.add_argument("--output", type=Path, default=None, help="default: out/NAME.ipynb")
    options = parser.parse_args()
    options.notebook = options.notebook.resolve()
    options.output = (options.output or ROOT / "out" / options.notebook.name).resolve()
    return options


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("interrupted")
