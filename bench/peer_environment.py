"""The peers' own virtual environment, made on first use; a peer that can't be installed is told."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable

from bench.harness import ROOT, Probe

__all__ = ["PEERS_PYTHON", "prepare"]

_FOLDER = ROOT / "bench" / ".peers"
PEERS_PYTHON = _FOLDER / "bin" / "python"
_TIMEOUT_S = 600.0

_NEEDS = {
    "ray": ("ray[tune]", "ray.tune"),
    "optuna": ("optuna", "optuna"),
    "dask": ("distributed cryptography", "distributed, cryptography"),
    "daskml": ("dask-ml distributed cryptography", "dask_ml.model_selection"),
    "ipyparallel": ("ipyparallel", "ipyparallel"),
}
"""By the first word of a peer's script: what to install, and what must import then."""


def prepare(
    probes: Iterable[Probe], *, wanted: bool, on_progress: Callable[[str], None]
) -> dict[Probe, str]:
    """Install what the peers' probes need.

    Returns
    -------
    dict
        Why a probe can't run, for those that can't.
    """
    peers = [probe for probe in probes if probe.is_peer]
    if not wanted:
        return dict.fromkeys(peers, "peers were left out (--no-peers)")
    reasons: dict[str, str] = {}
    for name in dict.fromkeys(_name(probe) for probe in peers):
        reason = _install(*_NEEDS[name], on_progress)
        if reason:
            reasons[name] = reason
    return {probe: reasons[_name(probe)] for probe in peers if _name(probe) in reasons}


def _name(probe: Probe) -> str:
    return probe.target.partition("_")[0]


def _install(requirement: str, module: str, on_progress: Callable[[str], None]) -> str:
    """Install one peer unless it imports already; returns why it failed, or nothing."""
    if not PEERS_PYTHON.exists():
        on_progress(f"making {_FOLDER.relative_to(ROOT)}")
        failure = _call([sys.executable, "-m", "venv", str(_FOLDER)])
        if failure:
            return failure
    if not _call([str(PEERS_PYTHON), "-c", f"import {module}"]):
        return ""
    on_progress(f"installing {requirement} for comparison")
    return _call(
        [str(PEERS_PYTHON), "-m", "pip", "install", "--quiet", *requirement.split(), "psutil"]
    )


def _call(command: list[str]) -> str:
    """Run a command; returns its last line of error output when it fails."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0:
        return ""
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    return lines[-1][:200] if lines else f"exit status {done.returncode}"
