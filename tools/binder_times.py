"""How long the notebooks' first cells take in a container like Binder's: one CPU and 2 GB.

Executes each notebook below memory and CPU cgroups (version 1, which takes root), with BinderHub's
variables.  The CPUs are its own: what else runs on the host has to wait.
``python tools/binder_times.py [--cpus 1] [--memory-gb 2] [--short] [NOTEBOOK …]``
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from notebook_runs import FOLDER, execute

_GROUPS = Path("/sys/fs/cgroup")
_VARIABLES = {
    "BINDER_LAUNCH_HOST": "https://mybinder.org/",
    "BINDER_REPO_URL": "https://github.com/example/example",
}
_NOTEBOOK_TIMEOUT_S = 900
_CELL = "%%distribute"
_SHARES = 200_000
"""Of CPU time, where other processes have 1,024: as if nobody else were there."""


def main() -> int:
    """Exit status 1 when a notebook failed or went over its memory, or none can be measured."""
    options = _options()
    if options.inside is not None:
        print(json.dumps(times(options.inside, _CELL if options.short else None)))
        return 0
    if (reason := refusal(_GROUPS)) is not None:
        print(reason, file=sys.stderr)
        return 1
    print(f"{options.cpus:g} CPU, {options.memory_gb:g} GB; seconds from sending a cell to its end")
    print(f"{'notebook':26}{'kernel':>8}{'first':>8}{'start':>8}{'cell':>8}{'all':>8}{'peak':>9}")
    paths = options.notebooks or sorted(FOLDER.glob("*.ipynb"))
    return max([_measure(path, options) for path in paths], default=0)


def refusal(groups: Path) -> str | None:
    """Why no container can be made below these control groups; None where it can."""
    lacking = [name for name in ("memory", "cpu") if not os.access(groups / name, os.W_OK)]
    if not lacking:
        return None
    return (
        f"no container can be made: {' and '.join(lacking)} below {groups} can't be written; "
        "expected control groups of version 1 and root's rights"
    )


def _measure(path: Path, options: argparse.Namespace) -> int:
    with _container(options.cpus, int(options.memory_gb * 2**30)) as groups:
        enter = "".join(f"echo $$ > {group}/cgroup.procs; " for group in groups)
        command = [sys.executable, __file__, "--inside", str(path)]
        command += ["--short"] if options.short else []
        done = subprocess.run(
            ["sh", "-c", f'{enter}exec "$@"', "sh", *command],
            env={**os.environ, **_VARIABLES},
            capture_output=True,
            text=True,
            timeout=_NOTEBOOK_TIMEOUT_S,
            check=False,
        )
        peak = int((groups[0] / "memory.max_usage_in_bytes").read_text())
        killed = "oom_kill 0" not in (groups[0] / "memory.oom_control").read_text()
    if done.returncode:
        print(f"{path.stem:26}failed: {done.stderr.strip()[-1500:]}")
        return 1
    print(row(path.stem, json.loads(done.stdout.splitlines()[-1]), peak, killed), flush=True)
    return int(killed)


def row(name: str, found: dict[str, float | None], peak_bytes: int, killed: bool) -> str:
    """One line of the table: seconds of :func:`times`, and the most memory."""
    figures = [found[part] for part in ("kernel", "first", "start", "cell", "all")]
    shown = "".join("      --" if each is None else f"{each:8.2f}" for each in figures)
    return f"{name:26}{shown}{peak_bytes / 2**20:6.0f} MB{' KILLED' if killed else ''}"


@contextlib.contextmanager
def _container(cpus: float, memory_bytes: int) -> Iterator[list[Path]]:
    """Directories of a new memory and a new CPU group, removed afterwards."""
    name = f"ddl-binder-{os.getpid()}"
    groups = [_GROUPS / "memory" / name, _GROUPS / "cpu" / name]
    for group in groups:
        group.mkdir()
    try:
        (groups[0] / "memory.limit_in_bytes").write_text(str(memory_bytes))
        (groups[1] / "cpu.cfs_period_us").write_text("100000")
        (groups[1] / "cpu.cfs_quota_us").write_text(str(int(cpus * 100_000)))
        (groups[1] / "cpu.shares").write_text(str(_SHARES))
        yield groups
    finally:
        for group in groups:
            _remove(group)


def _remove(group: Path) -> None:
    deadline = time.monotonic() + 20
    while group.is_dir():
        try:
            group.rmdir()
        except OSError:  # its last processes are just ending
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def times(path: Path, last: str | None = None) -> dict[str, float | None]:
    """Execute one notebook here; seconds of its kernel, its first cells and all of it.

    Parameters
    ----------
    last : str, optional
        Leave off behind the first cell that begins so.
    """
    began_s = time.monotonic()
    done = execute(path, last)
    all_s = time.monotonic() - began_s
    sources = [cell.source for cell in done.notebook.cells if cell.cell_type == "code"]
    return {
        "kernel": done.kernel_s,
        "first": done.seconds[0],
        "start": _of_first(sources, done.seconds, "%cluster start"),
        "cell": _of_first(sources, done.seconds, _CELL),
        "all": all_s,
    }


def _of_first(sources: list[str], seconds: list[float], beginning: str) -> float | None:
    found = [n for n, source in enumerate(sources) if source.startswith(beginning)]
    return seconds[found[0]] if found else None


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Time notebooks in a container like Binder's.")
    parser.add_argument("--cpus", type=float, default=1.0)
    parser.add_argument("--memory-gb", type=float, default=2.0)
    parser.add_argument("--short", action="store_true", help="to the first %%%%distribute only")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("notebooks", nargs="*", type=Path, help="default: all in notebooks/")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
