"""Where a run comes from: versions, git revision, user, host."""

from __future__ import annotations

import functools
import getpass
import importlib.metadata
import os
import platform
import socket
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from jupyter_ddl.protocol.run import Provenance

__all__ = ["collect", "git_state", "package_versions"]

_GIT_DEADLINE_S = 2.0


def collect(line: str, cell: str, notebook_path: Path | None, imports: Iterable[str]) -> Provenance:
    """The record of how a run came about.

    Parameters
    ----------
    line
        The magic's first line as typed, with ``%%distribute``.
    cell
        The cell's body as typed.
    notebook_path
        The notebook's file, or None where it is not known (the working directory then counts).
    imports
        Top-level packages whose versions are recorded.
    """
    folder = Path.cwd() if notebook_path is None else notebook_path.parent
    revision, dirty = git_state(folder)
    return Provenance(
        line=line,
        cell=cell,
        notebook=None if notebook_path is None else str(notebook_path),
        user=_user(),
        host=socket.gethostname(),
        python=platform.python_version(),
        packages=package_versions(imports),
        git_revision=revision,
        git_dirty=dirty,
    )


def package_versions(imports: Iterable[str]) -> dict[str, str]:
    """Installed version of each top-level package that has one."""
    versions = {name: _version(name) for name in sorted(set(imports) | {"jupyter_ddl"})}
    return {name: version for name, version in versions.items() if version is not None}


def git_state(folder: Path) -> tuple[str | None, bool]:
    """Revision that ``folder`` is at, and whether tracked files differ from it.

    Without git, outside a repository, or when git takes longer than 2 s: ``(None, False)``.
    """
    command = ["git", "status", "--porcelain=v2", "--branch", "--untracked-files=no", "."]
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=_GIT_DEADLINE_S,
            check=False,
            # Looking must not take the index's lock from a git of the user's.
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return None, False
    if done.returncode != 0:
        return None, False
    lines = done.stdout.splitlines()
    heads = [
        each.removeprefix("# branch.oid ") for each in lines if each.startswith("# branch.oid")
    ]
    revision = heads[0] if heads and heads[0] != "(initial)" else None
    return revision, any(not each.startswith("#") for each in lines)


@functools.cache
def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
    # `sklearn` comes from `scikit-learn`: look through all distributions, once.
    for distribution in _distributions().get(name, ()):
        try:
            return importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


@functools.cache
def _distributions() -> Mapping[str, list[str]]:
    return importlib.metadata.packages_distributions()


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user id without a name
        return str(os.getuid())
