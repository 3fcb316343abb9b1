"""``%cluster env sync``: gives workers the packages that the kernel has and they do not."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from jupyter_ddl.client.environment import compare_with, forget_answers
from jupyter_ddl.client.session import session
from jupyter_ddl.environment.compare import kernel_environment
from jupyter_ddl.environment.wheels import build_wheel, fetch_wheels, runs_on
from jupyter_ddl.errors import ClusterError, WorkerEnvironmentError
from jupyter_ddl.formats import format_counted
from jupyter_ddl.protocol.facts import CORE, Facts, PackageContents, Patch, WheelFile
from jupyter_ddl.protocol.replies import EnvironmentResult
from jupyter_ddl.protocol.requests import SyncEnvironment
from jupyter_ddl.store.blobs import digest_of, put_blob
from jupyter_ddl.store.packages import normal_name
from jupyter_ddl.store.paths import blob_dirs
from jupyter_ddl.store.wheel_contents import installed_contents

__all__ = ["Synced", "sync_environment", "synced_lines", "wanted_packages"]

_NAME = re.compile(r"[A-Za-z0-9]([\w.-]*[A-Za-z0-9])?", re.ASCII)
_TIMEOUT_S = 600.0
_MAX_WHEELS_BYTES = 256 << 20
_MAX_FETCHED_BYTES = 100 << 20
"""Of an index' wheels that are sent: beyond, workers have to get theirs from it themselves."""


class Synced(NamedTuple):
    """What was done."""

    requirements: tuple[str, ...]
    """Installed on every worker."""
    renewed: tuple[str, ...]
    """Were on the workers' disks already: ranks start over with them."""
    left: tuple[str, ...]
    """What only a new start of the cluster changes."""


def sync_environment(
    cluster: str,
    *,
    imports: Iterable[str] = (),
    packages: Iterable[str] = (),
    everything: bool = False,
    on_phase: Callable[[str], None] = lambda _: None,
) -> Synced:
    """Install the difference on the workers of a cluster, also of those that will come.

    Parameters
    ----------
    imports : iterable of str
        Top-level modules: what they need is installed where it differs.
    packages : iterable of str
        Packages by name, with what they need.
    everything : bool
        Every package of this kernel.

    Raises
    ------
    WorkerEnvironmentError
        A package is not installed here, cannot be built, or could not be installed on a worker.
    """
    kernel = kernel_environment()
    names = _names(imports, packages, everything)
    on_phase("comparing")
    checked = compare_with(cluster, None, None)
    facts = kernel.facts()
    wanted, renewed, left = wanted_packages(facts, checked.workers, names)
    if not wanted and not renewed:
        return Synced((), (), left)
    with tempfile.TemporaryDirectory(prefix="jupyter-ddl-wheels-") as directory:
        patch = _patch(facts, wanted, Path(directory), on_phase)
        if checked.apart:
            patch = _with_fetched(patch, facts, checked.workers, Path(directory), on_phase)
        n = len(checked.workers)
        on_phase(f"installing on {format_counted(n, 'worker')}")
        result = session().ask(cluster, SyncEnvironment(patch), _TIMEOUT_S)
    forget_answers(cluster)
    _raise_for(result)
    return Synced(patch.requirements, renewed, left)


def synced_lines(synced: Synced) -> list[str]:
    """What was done, a sentence each."""
    lines = []
    if synced.requirements:
        lines.append(
            f"Workers have {', '.join(synced.requirements)}, and so will those that join later."
        )
    if synced.renewed:
        lines.append(f"New ranks load the installed {', '.join(synced.renewed)}.")
    if synced.left:
        names, them = ", ".join(synced.left), "them" if len(synced.left) > 1 else "it"
        lines.append(
            f"{names}: the worker itself runs on {them}; `%cluster stop` and `%cluster start` "
            f"load what is installed; an image with the kernel's versions brings others."
        )
    return lines or ["Workers have all that this notebook uses: nothing was installed."]


def wanted_packages(
    kernel: Facts, workers: Mapping[str, Facts], names: frozenset[str] | None
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """What is to be installed, what only needs new ranks, and what can be done neither way.  Pure.

    Parameters
    ----------
    names : frozenset or None
        Packages in question; None: all that the kernel has.
    """
    install: set[str] = set()
    renew: set[str] = set()
    left: set[str] = set()
    for name, version in kernel.packages.items():
        if names is not None and name not in names:
            continue
        for facts in workers.values():
            there = facts.packages.get(name)
            if there == version and facts.sources.get(name) == kernel.sources.get(name):
                continue
            if name in CORE:
                left.add(name)
            elif facts.held.get(name) == version:
                renew.add(name)
            else:
                install.add(name)
    return tuple(sorted(install)), tuple(sorted(renew - install)), tuple(sorted(left))


def _names(
    imports: Iterable[str], packages: Iterable[str], everything: bool
) -> frozenset[str] | None:
    kernel = kernel_environment()
    if everything:
        return None
    for each in packages:
        if not _NAME.fullmatch(each):
            raise WorkerEnvironmentError(
                f"env sync {each}: this is not a package's name; without a version one is "
                "expected, because workers get the kernel's",
                package=each,
            )
    chosen = [normal_name(each) for each in packages]
    absent = [each for each in chosen if each not in kernel.reader.installed]
    if absent:
        raise WorkerEnvironmentError(
            f"env sync {absent[0]}: this kernel has no such package; `%pip install {absent[0]}` "
            f"first, the workers then get the same version",
            package=absent[0],
        )
    return kernel.scope(imports).needed | kernel.scope_of_packages(chosen).needed


def _patch(
    facts: Facts, names: tuple[str, ...], directory: Path, on_phase: Callable[[str], None]
) -> Patch:
    wheels = []
    for name in names:
        source = facts.sources.get(name, "")
        if source:
            on_phase(f"building {name}")
            wheels.append(_stored(build_wheel(name, source, directory), _origin(name)))
    n_bytes = sum(each.size_bytes for each in wheels)
    if n_bytes > _MAX_WHEELS_BYTES:
        raise WorkerEnvironmentError(
            f"the locally built wheels have {n_bytes:,} bytes, more than the {_MAX_WHEELS_BYTES:,} "
            "that may travel; put the largest packages into the image"
        )
    requirements = tuple(f"{name}=={facts.packages[name]}" for name in names)
    contents = {name: known for name in names if (known := _contents(name, facts)) is not None}
    return Patch(requirements, tuple(wheels), time.time(), contents)


def _with_fetched(
    patch: Patch,
    facts: Facts,
    workers: Mapping[str, Facts],
    directory: Path,
    on_phase: Callable[[str], None],
) -> Patch:
    """The patch with what an index has, for workers that perhaps reach none."""
    wanted = [each for each in patch.requirements if not facts.sources.get(each.split("==")[0])]
    if wanted:
        on_phase(f"fetching {', '.join(wanted)}")
    wheels, n_bytes = list(patch.wheels), 0
    found = fetch_wheels(wanted, directory)
    for path in sorted(found, key=lambda path: path.stat().st_size):
        n_bytes += path.stat().st_size
        if n_bytes <= _MAX_FETCHED_BYTES and runs_on(path, facts, workers.values()):
            wheels.append(_stored(path, ""))
    return msgspec.structs.replace(patch, wheels=tuple(wheels))


def _contents(name: str, facts: Facts) -> PackageContents | None:
    """Of what came from an index: a checkout's wheel is built here and travels itself."""
    if facts.sources.get(name):
        return None
    return installed_contents(Path(kernel_environment().reader.installed[name].directory))


def _origin(name: str) -> str:
    directory = Path(kernel_environment().reader.installed[name].directory)
    return (directory / "direct_url.json").read_text()


def _stored(path: Path, origin: str) -> WheelFile:
    data = path.read_bytes()
    digest = digest_of(data)
    put_blob(data, blob_dirs(), digest)
    return WheelFile(path.name, digest, len(data), origin)


def _raise_for(result: object) -> None:
    if not isinstance(result, EnvironmentResult):
        raise ClusterError(f"the controller answered {type(result).__name__} to env sync")
    if result.errors:
        worker, reason = next(iter(sorted(result.errors.items())))
        more = len(result.errors) - 1
        others = f" (and {more} more)" if more else ""
        n_done = len(result.workers) - len(result.errors)
        left = "nothing has changed on any"
        if n_done:
            ready = "the other one has it" if n_done == 1 else f"the other {n_done} have it"
            left = f"{ready}; a worker without it takes no work until it has it"
        raise WorkerEnvironmentError(
            f"env sync failed on worker {worker}{others}: {reason}; {left}", worker=worker
        )
    if result.n_silent:
        raise WorkerEnvironmentError(
            f"env sync: {result.n_silent} workers did not answer; `%cluster logs` says more"
        )
