"""Wheels that travel: built of what no index has, or fetched for workers that reach none."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from jupyter_ddl.errors import WorkerEnvironmentError
from jupyter_ddl.protocol.facts import Facts

__all__ = ["build_wheel", "fetch_wheels", "runs_on", "wheel_target"]

_TIMEOUT_S = 300.0
_BACKEND_MISSING = ("Cannot import", "BackendUnavailable", "ModuleNotFoundError")


def wheel_target(name: str, source: str) -> str:
    """What pip is to build for a package that came from somewhere else than an index.

    Parameters
    ----------
    source : str
        As in :attr:`Facts.sources`: ``editable file://…``, ``file://…`` or ``git+…@commit``.
    """
    url = source.removeprefix("editable ")
    return url.removeprefix("file://") if url.startswith("file://") else f"{name} @ {url}"


def build_wheel(name: str, source: str, directory: Path) -> Path:
    """Build one wheel into ``directory``, with the build tools that are installed here.

    Raises
    ------
    WorkerEnvironmentError
        The checkout is gone, or cannot be built; says what pip says.
    """
    target = wheel_target(name, source)
    if target.startswith("/") and not Path(target).is_dir():
        raise WorkerEnvironmentError(
            f"{name} was installed from {target}, which no longer exists; install it again "
            f"here, then `%cluster env sync`",
            package=name,
        )
    before = set(directory.glob("*.whl"))
    done = _pip([target], directory, "--no-build-isolation")
    if done.returncode and any(word in done.stdout for word in _BACKEND_MISSING):
        done = _pip([target], directory)
    made = sorted(set(directory.glob("*.whl")) - before)
    if done.returncode or not made:
        raise WorkerEnvironmentError(
            f"{name} comes from {target} and no wheel can be built of it: {_reason(done.stdout)}; "
            f"fix its build (`pip wheel --no-deps {target}`), or put it into the image",
            package=name,
        )
    return made[0]


def fetch_wheels(requirements: Sequence[str], directory: Path) -> list[Path]:
    """Wheels of packages in given versions, of those that this host's pip can get.

    Parameters
    ----------
    requirements : sequence of str
        ``name==version``.
    """
    before = set(directory.glob("*.whl"))
    if requirements and _pip(requirements, directory).returncode:
        for each in requirements:  # what one lacks, the others need not lack
            _pip([each], directory)
    return sorted(set(directory.glob("*.whl")) - before)


def runs_on(wheel: Path, kernel: Facts, workers: Iterable[Facts]) -> bool:
    """Whether a wheel that was fetched for this kernel is one for these workers as well."""
    if wheel.name.endswith("-none-any.whl"):
        return True
    return all(_platform(each) == _platform(kernel) for each in workers)


def _platform(facts: Facts) -> tuple[str, ...]:
    minor = ".".join(facts.python.split(".")[:2])
    return minor, facts.implementation, facts.machine, facts.libc.partition(" ")[0]


def _pip(
    targets: Sequence[str], directory: Path, *options: str
) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-P",
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--no-input",
        "wheel",
    ]
    try:
        return subprocess.run(
            [*command, "--no-deps", *options, "--wheel-dir", str(directory), *targets],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise WorkerEnvironmentError(
            f"making wheels of {', '.join(targets)} took longer than {_TIMEOUT_S:.0f} s"
        ) from None


def _reason(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    known = [line for line in lines if "error" in line.lower() and "subprocess" not in line]
    return (known or lines or ["pip said nothing"])[-1].removeprefix("ERROR: ")[:300]
