"""Versions below which a package has a known hole that matters here, and what it is."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Mapping

from packaging.version import InvalidVersion, Version

__all__ = ["FLOORS", "outdated"]

FLOORS: Mapping[str, tuple[str, str]] = {
    "distributed": ("2026.8.0", "a dashboard leads to other hosts"),
    "jupyter_server": ("2.20", "a page that is opened can reach kernels"),
    "jupyterlab": ("4.5.9", "outputs of a notebook can press buttons"),
    "jupyter-server-proxy": ("4.1.1", "its websockets ask nobody who they are"),
    "torch": ("2.10", "loading a checkpoint can corrupt memory"),
}


def _installed(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def outdated(version_of: Callable[[str], str] = _installed) -> list[str]:
    """A sentence for each package that is older than it may be; those that are not there may be.

    Parameters
    ----------
    version_of : callable
        The version of a package, empty where it is not installed.
    """
    told = []
    for name, (floor, hole) in FLOORS.items():
        version = version_of(name)
        if version and _is_older(version, floor):
            told.append(
                f"{name} {version} has a known hole ({hole}), which {floor} closes: "
                f"`pip install -U {name}`"
            )
    return told


def _is_older(version: str, floor: str) -> bool:
    try:
        return Version(version) < Version(floor)
    except InvalidVersion:
        return False  # of somebody's own making
