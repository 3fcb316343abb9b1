"""Rows, probes and repeats: every figure comes from a fresh process.

A row names its lines; a line names the probe that measures it and the figure that it shows.  The
probes of a row take turns, so that a busy minute of the machine hits all of them alike.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import psutil

__all__ = [
    "ROOT",
    "Goal",
    "Line",
    "Probe",
    "ProbeFailedError",
    "Row",
    "Series",
    "is_quick",
    "measure_row",
    "run_probe",
    "tell",
]

ROOT = Path(__file__).resolve().parent.parent
TOKEN_VARIABLE = "JUPYTER_DDL_BENCH"
"""Marks every process of a probe, so that none outlives it."""
QUICK_VARIABLE = "JUPYTER_DDL_BENCH_QUICK"

_MARK = "BENCH-RESULT "
_FAILURES = "failures"
_GRACE_S = 5.0
_MAX_FAILURES = 2

Better = Literal["higher", "lower"]


class ProbeFailedError(Exception):
    """A probe gave no figures; the message is its last words."""


@dataclass(frozen=True)
class Goal:
    """A bound that the issue sets.  ``better`` says on which side of it the good values lie."""

    bound: float
    better: Better

    def is_met(self, value: float) -> bool:
        return value >= self.bound if self.better == "higher" else value <= self.bound

    def __str__(self) -> str:
        return f"{'≥' if self.better == 'higher' else '≤'} {self.bound:g}"


@dataclass(frozen=True)
class Probe:
    """A process that measures: a module of this environment, or a script of the peers' one."""

    target: str
    """``bench.rows.trials``, or a file in ``bench/peers`` (then it runs there)."""
    args: tuple[str, ...] = ()
    timeout_s: float = 300.0
    """Seconds that one run of it may take."""

    @property
    def is_peer(self) -> bool:
        return self.target.endswith(".py")


@dataclass(frozen=True)
class Line:
    """One line of the report: a figure of a probe."""

    label: str
    probe: Probe
    key: str
    unit: str
    goal: Goal | None = None
    compare: bool = False
    """Show how many times better the row's first line is."""
    better: Better | None = None
    """Where it is not as of the row."""


@dataclass(frozen=True)
class Row:
    """One row of the issue's table."""

    name: str
    title: str
    lines: tuple[Line, ...]
    better: Better
    repeats: int = 5
    warmups: int = 1
    note: str = ""

    @property
    def probes(self) -> tuple[Probe, ...]:
        return tuple(dict.fromkeys(line.probe for line in self.lines))


@dataclass
class Series:
    """All values of one line, and why some or all are missing."""

    values: list[float] = field(default_factory=list)
    failures: tuple[str, ...] = ()
    """One reason per round in which the probe gave nothing, and what it told to have failed."""

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def quartiles(self) -> tuple[float, float]:
        """First and third quartile; the value itself when there is only one."""
        if len(self.values) < 2:
            return self.values[0], self.values[0]
        low, _, high = statistics.quantiles(self.values, n=4, method="inclusive")
        return low, high


def tell(
    figures: Mapping[str, float | Sequence[float]],
    failures: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """What a probe calls at its end: hand figures to the harness.

    Parameters
    ----------
    failures
        By the key of a figure: why something that it counts has failed.
    """
    told = {**figures, **({_FAILURES: dict(failures)} if failures else {})}
    print(_MARK + json.dumps(told), flush=True)


def is_quick() -> bool:
    """Whether a probe should take fewer trials than the goal speaks of."""
    return bool(os.environ.get(QUICK_VARIABLE))


def measure_row(
    row: Row,
    repeats: int,
    *,
    quick: bool,
    peers: Mapping[Probe, str],
    peers_python: Path,
    on_progress: Callable[[str], None],
) -> dict[Line, Series]:
    """Run a row's probes in turn; the first ``row.warmups`` rounds are thrown away.

    Parameters
    ----------
    peers
        Why a peer's probe can't run, for those that can't.
    """
    series = {line: Series() for line in row.lines}
    failed = {probe: [reason] * _MAX_FAILURES for probe, reason in peers.items()}
    for number in range(row.warmups + repeats):
        for probe in row.probes:
            if len(failed.get(probe, ())) >= _MAX_FAILURES:
                continue
            python = peers_python if probe.is_peer else Path(sys.executable)
            try:
                figures = run_probe(probe, python, quick)
            except ProbeFailedError as error:
                failed.setdefault(probe, []).append(str(error))
                on_progress(f"{row.name}: {probe.target} {' '.join(probe.args)} FAILED: {error}")
                continue
            told = figures.pop(_FAILURES, {})
            for key, reasons in told.items():
                for reason in reasons:
                    on_progress(f"{row.name}: {key}: {reason}")
            text = ", ".join(f"{key} {_short(value)}" for key, value in figures.items())
            discarded = " (discarded)" if number < row.warmups else ""
            on_progress(f"{row.name}: {probe.target} {' '.join(probe.args)}{discarded}: {text}")
            if number >= row.warmups:
                _collect(series, probe, figures, told)
    for line, found in series.items():
        found.failures += tuple(failed.get(line.probe, ()))
        if not found.values and not found.failures:
            found.failures = (f"the probe told no {line.key}",)
    return series


def _collect(
    series: dict[Line, Series],
    probe: Probe,
    figures: Mapping[str, Any],
    told: Mapping[str, Sequence[str]],
) -> None:
    for line, found in series.items():
        if line.probe == probe and line.key in figures:
            value = figures[line.key]
            found.values.extend(value if isinstance(value, list) else [value])
            found.failures += tuple(told.get(line.key, ()))


def run_probe(probe: Probe, python: Path, quick: bool, *, root: Path = ROOT) -> dict[str, Any]:
    """One fresh process with a home and a runtime directory of its own; nothing of it is left.

    Parameters
    ----------
    root
        The checkout whose probe and package it is.

    Raises
    ------
    ProbeFailedError
        It gave no figures.
    """
    token = uuid.uuid4().hex
    with tempfile.TemporaryDirectory(prefix="ddl-bench-", ignore_cleanup_errors=True) as folder:
        target = (
            [str(root / "bench" / "peers" / probe.target)]
            if probe.is_peer
            else ["-m", probe.target]
        )
        environment = {
            **os.environ,
            TOKEN_VARIABLE: token,
            "JUPYTER_DDL_HOME": f"{folder}/home",
            "JUPYTER_RUNTIME_DIR": f"{folder}/rt",
            "IPYTHONDIR": f"{folder}/ipython",
            "TMPDIR": folder,
            "PYTHONPATH": str(root),
            **({QUICK_VARIABLE: "1"} if quick else {}),
        }
        with tempfile.TemporaryFile() as errors:
            process = subprocess.Popen(
                [str(python), *target, *probe.args],
                cwd=folder,  # modules beside the notebook would travel with the cell
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
            try:
                output, _ = process.communicate(timeout=probe.timeout_s)
            except subprocess.TimeoutExpired:
                raise ProbeFailedError(f"not done after {probe.timeout_s:.0f} s") from None
            finally:
                _end_all(token)
                process.wait()
            errors.seek(0)
            return _figures(output.decode(errors="replace"), errors.read().decode(errors="replace"))


def _figures(output: str, errors: str) -> dict[str, Any]:
    for line in reversed(output.splitlines()):
        if line.startswith(_MARK):
            figures: dict[str, Any] = json.loads(line.removeprefix(_MARK))
            return figures
    last = [line.strip() for line in (errors or output).splitlines() if line.strip()]
    raise ProbeFailedError(last[-1][:200] if last else "it ended without any output")


def _end_all(token: str) -> None:
    """Kill what a probe has left after a grace; a clean probe leaves nothing."""
    left = [process for process in psutil.process_iter() if _token_of(process) == token]
    _, alive = psutil.wait_procs(left, timeout=_GRACE_S if left else 0)
    for process in alive:
        print(f"left behind, killed: {process}", file=sys.stderr)
        try:
            process.send_signal(signal.SIGKILL)
        except psutil.NoSuchProcess:
            continue  # it ended just now
    psutil.wait_procs(alive, timeout=_GRACE_S)


def _token_of(process: psutil.Process) -> str | None:
    try:
        return process.environ().get(TOKEN_VARIABLE)
    except (psutil.Error, OSError):
        return None


def _short(value: Any) -> str:
    if isinstance(value, list):
        return f"{statistics.median(value):.4g} (median of {len(value)})"
    return f"{value:.4g}"
