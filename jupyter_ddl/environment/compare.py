"""Compares environments: the kernel's with those of workers, and with what files ask for.  Pure.

What differs counts only where it can matter: Python and the packages that carry the cell always,
other packages where the cell imports them.  What breaks a cell is told apart from what may only
change its numbers.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, NamedTuple, TypeAlias

import psutil
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from jupyter_ddl.environment.requirements import Configuration
from jupyter_ddl.protocol.facts import CORE, Difference, EnvironmentVerdict, Facts, VerdictWord
from jupyter_ddl.store.packages import EnvironmentReader, Installed, normal_name, top_levels

__all__ = [
    "SYNC",
    "KernelEnvironment",
    "PairDifference",
    "Scope",
    "compare",
    "difference_text",
    "differences",
    "distributions_of",
    "kernel_environment",
    "modules_in",
    "needs_of",
    "scope_of",
    "verdict_line",
]


# The environment of this very process: what it has loaded, and what is on disk by now.


class KernelEnvironment:
    """Facts of this process; each question costs microseconds unless something was installed."""

    def __init__(self) -> None:
        self.reader = EnvironmentReader(sys.path)
        self.reader.note_replaced(_replaced_since_start(self.reader))
        self._scopes: dict[tuple[object, frozenset[str]], Scope] = {}

    def facts(self) -> Facts:
        self._poll()
        return self.reader.facts()

    @property
    def digest(self) -> str:
        """Changes when facts do."""
        self._poll()
        return self.reader.digest

    def scope(self, imports: Iterable[str]) -> Scope:
        """Packages behind top-level modules, see :func:`scope_of`."""
        names = frozenset(imports)
        self.reader.use_path(sys.path)
        key = (self.reader.stamp, names)
        if key not in self._scopes:
            if len(self._scopes) > 100:
                self._scopes.clear()
            self._scopes[key] = scope_of(names, self.reader.installed)
        return self._scopes[key]

    def scope_of_packages(self, names: Iterable[str]) -> Scope:
        """Packages by their own normalised names, and what they need."""
        return needs_of(names, self.reader.installed)

    def _poll(self) -> None:
        self.reader.use_path(sys.path)
        self.reader.note_loaded({name.partition(".")[0] for name in tuple(sys.modules)})


@cache
def kernel_environment() -> KernelEnvironment:
    """The process's one."""
    return KernelEnvironment()


def modules_in(namespace: Mapping[str, Any]) -> frozenset[str]:
    """Top-level modules that the names of a notebook come from."""
    found = set()
    for name, value in tuple(namespace.items()):
        if name.startswith("_"):
            continue
        if isinstance(value, ModuleType):
            found.add(value.__name__.partition(".")[0])
        else:
            origin = getattr(value, "__module__", None) or getattr(type(value), "__module__", "")
            if isinstance(origin, str):
                found.add(origin.partition(".")[0])
    return frozenset(
        name
        for name in found
        if name and name not in sys.stdlib_module_names and name not in ("IPython", "__main__")
    )


def _replaced_since_start(reader: EnvironmentReader) -> dict[str, str]:
    """Packages that were replaced after this process had loaded them, and before it looked.

    Only modules that tell their version can tell.
    """
    started_s = psutil.Process().create_time()
    found = {}
    for name, each in reader.installed.items():
        try:
            installed_s = Path(each.directory).stat().st_mtime
        except OSError:
            continue
        if installed_s <= started_s:
            continue
        for top in top_levels(name, each):
            version = getattr(sys.modules.get(top), "__version__", None)
            if isinstance(version, str) and version != each.version:
                found[name] = version
    return found


# Which packages a piece of code uses: what it imports, and what that needs in turn.

_REQUIRES = re.compile(r"^Requires-Dist:(.+)$", re.MULTILINE)


class Scope(NamedTuple):
    """Packages that count, by normalised name."""

    direct: frozenset[str]
    """Imported by the code itself."""
    needed: frozenset[str]
    """Those, and all that they require."""


def scope_of(imports: Iterable[str], installed: Mapping[str, Installed]) -> Scope:
    """The packages behind top-level modules.

    Modules that no installed package brings do not count: they travel with the cell.
    """
    return needs_of(distributions_of(imports, installed), installed)


def needs_of(names: Iterable[str], installed: Mapping[str, Installed]) -> Scope:
    """Packages, and all that they require."""
    direct = frozenset(names)
    needed = set(direct)
    waiting = list(direct)
    while waiting:
        name = waiting.pop()
        if name in installed:
            new = _requires(installed[name]) - needed
            needed |= new
            waiting += new
    return Scope(direct, frozenset(needed))


def distributions_of(imports: Iterable[str], installed: Mapping[str, Installed]) -> set[str]:
    """Names of the packages that bring top-level modules."""
    found: set[str] = set()
    unknown = []
    for top in imports:
        name = normal_name(top)
        if name in installed:
            found.add(name)
        else:
            unknown.append(top)
    if unknown:
        # `sklearn` comes from `scikit-learn`: look through all of them, 20 ms the first time.
        for name, each in installed.items():
            if not top_levels(name, each).isdisjoint(unknown):
                found.add(name)
    return found


@cache
def _requires(installed: Installed) -> frozenset[str]:
    """What a package requires here, without extras."""
    directory = Path(installed.directory)
    file = directory / ("METADATA" if directory.suffix == ".dist-info" else "PKG-INFO")
    try:
        head = file.read_text(errors="replace").partition("\n\n")[0]
    except OSError:
        return frozenset()
    found = set()
    for text in _REQUIRES.findall(head):
        try:
            requirement = Requirement(text.strip())
        except InvalidRequirement:
            continue
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            found.add(normal_name(requirement.name))
    return frozenset(found)


# A verdict in one line, for warnings, refusals and records.


def difference_text(each: Difference) -> str:
    """``numpy is 2.1.0 here, 2.0.2 on all workers``."""
    if "worker" in each.where:
        place = "lacks it" if each.other == "none" else f"has {each.other}"
        if each.where.startswith(("all", "workers")) or " of " in each.where:
            place = place.replace("lacks", "lack").replace("has", "have")
        seen = "is missing here" if each.kernel == "none" else f"is {each.kernel} here"
        return f"{each.what} {seen}, {each.where} {place}"
    seen = "is missing here" if each.kernel == "none" else f"is {each.kernel} here"
    return f"{each.what} {seen}, {each.where} asks for {each.other}"


def verdict_line(verdict: EnvironmentVerdict) -> str:
    """The worst difference, how many more there are, and what fixes it; empty for ``same``."""
    if not verdict.differences:
        return ""
    first = verdict.differences[0]
    more = len(verdict.differences) - 1
    rest = f" (and {more} more: `%cluster env check`)" if more else ""
    fix = f"; {first.fix} fixes it" if first.fix.startswith("`") else ""
    if first.fix and not fix:
        fix = f"; to fix it, {first.fix}"
    return f"{difference_text(first)}{rest}{fix}"


SYNC = "`%cluster env sync`"
_AGAIN = "`%cluster stop` and `%cluster start`"
_RENEW = f"{SYNC} (or {_AGAIN})"
_IMAGE = "start the cluster with the kernel's own image (`--env auto`)"
_RESTART = "restart the kernel"
_MISSING = "none"
_NUMERICAL = frozenset({"numpy", "torch", "jax", "tensorflow", "scipy"})

Fix: TypeAlias = Literal["sync", "again", "renew", "kernel", "image", "nothing"]
_FIXES: dict[Fix, str] = {
    "sync": SYNC,
    "again": _AGAIN,
    "renew": _RENEW,
    "kernel": _RESTART,
    "image": _IMAGE,
    "nothing": "",
}


class PairDifference(NamedTuple):
    """One difference between two processes.  ``rank``: 0 is the worst."""

    what: str
    ours: str
    theirs: str
    rank: int
    fix: Fix

    @property
    def breaks(self) -> bool:
        return self.rank == 0

    @property
    def counts(self) -> bool:
        return self.rank < 3


def differences(ours: Facts, theirs: Facts, scope: Scope | None) -> list[PairDifference]:
    """What differs between two processes.

    Symmetric in what is found and how bad it is; a larger scope never makes it better.

    Parameters
    ----------
    scope : Scope or None
        Packages that count; None: all.
    """
    found = [*_of_python(ours, theirs), *_of_packages(ours, theirs, scope)]
    found += _of_builds(ours, theirs, scope, {each.what for each in found})
    return sorted(found, key=lambda each: (each.rank, each.what))


def compare(
    kernel: Facts,
    workers: Mapping[str, Facts],
    *,
    scope: Scope | None,
    asked: Configuration | None = None,
) -> EnvironmentVerdict:
    """The verdict about a kernel, the workers of a cluster, and what a binder directory asks for.

    Parameters
    ----------
    workers : mapping
        Facts by the worker's name.
    scope : Scope or None
        Packages that the cell imports and needs; None: all packages count.
    asked : Configuration, optional
        What the notebook's folder asks for.
    """
    counted: dict[PairDifference, list[str]] = {}
    uncounted: dict[PairDifference, list[str]] = {}
    for name, facts in workers.items():
        found = [each for each in differences(kernel, facts, scope) if each.counts]
        for each in found:
            counted.setdefault(each, []).append(name)
        known = {each.what for each in found}
        for each in () if scope is None else differences(kernel, facts, None):
            if each.what not in known:
                uncounted.setdefault(each, []).append(name)
    lines = _lines(counted, len(workers))
    lines += list(unmet(kernel, asked, scope)) if asked is not None else []
    word: VerdictWord = "same"
    if lines:
        word = "broken" if any(each.breaks for each in lines) else "drift"
    return EnvironmentVerdict(word, tuple(lines), tuple(_lines(uncounted, len(workers))))


def _lines(grouped: Mapping[PairDifference, list[str]], n_workers: int) -> list[Difference]:
    """The worst first, and of those what the cell imports itself."""
    placed = [(each, _where(names, n_workers)) for each, names in grouped.items()]
    return [
        Difference(each.what, each.ours, each.theirs, where, each.breaks, _FIXES[each.fix])
        for each, where in sorted(placed, key=lambda pair: (pair[0].rank, pair[0].what, pair[1]))
    ]


def _of_python(ours: Facts, theirs: Facts) -> Iterator[PairDifference]:
    a, b = ours.python, theirs.python
    if ours.implementation != theirs.implementation:
        a, b = f"{ours.implementation} {a}", f"{theirs.implementation} {b}"
        yield PairDifference("python", a, b, 0, "image")
    elif a != b:
        yield PairDifference("python", a, b, 2 if _minor(a) == _minor(b) else 0, "image")
    if ours.machine != theirs.machine:
        yield PairDifference("machine", ours.machine, theirs.machine, 0, "image")


def _of_packages(ours: Facts, theirs: Facts, scope: Scope | None) -> Iterator[PairDifference]:
    for name in ours.packages.keys() | theirs.packages.keys():
        a, b = ours.packages.get(name, ""), theirs.packages.get(name, "")
        from_a, from_b = ours.sources.get(name, ""), theirs.sources.get(name, "")
        if a == b and from_a == from_b:
            continue
        rank = _rank(name, a, b, scope)
        if a == b:
            a, b = _with_source(a, from_a), _with_source(b, from_b)
        yield PairDifference(name, a or _MISSING, b or _MISSING, rank, _mend(name, ours, theirs))


def _rank(name: str, a: str, b: str, scope: Scope | None) -> int:
    """0: breaks, 1: imported by the cell, 2: needed by that, 3: does not count."""
    if a != b and (name in CORE or name == "cloudpickle"):
        return 0
    if scope is None:
        return 0 if name == "torch" and _release(a) != _release(b) else 2
    if name not in scope.needed:
        return 3
    if name == "torch" and _release(a) != _release(b):
        return 0
    if name in scope.direct:
        return 0 if not (a and b) else 1
    return 2


def _mend(name: str, ours: Facts, theirs: Facts) -> Fix:
    if name in theirs.held:
        return "again" if name in CORE else "renew"
    if name in ours.held:
        return "kernel"
    if name in CORE:
        return "image"
    return "sync" if name in ours.packages else "nothing"


def _of_builds(
    ours: Facts, theirs: Facts, scope: Scope | None, known: set[str]
) -> Iterator[PairDifference]:
    """What the same versions can differ in."""
    needed = None if scope is None else scope.needed
    if "numpy" not in known and ours.blas != theirs.blas and _counts(needed, {"numpy"}):
        yield PairDifference("BLAS", ours.blas or _MISSING, theirs.blas or _MISSING, 2, "nothing")
    with_torch = _counts(needed, {"torch"})
    if "torch" not in known and ours.torch_build != theirs.torch_build and with_torch:
        yield PairDifference(
            "torch build", ours.torch_build or _MISSING, theirs.torch_build or _MISSING, 2, "image"
        )
    drivers = ours.gpu_driver, theirs.gpu_driver
    if all(drivers) and drivers[0] != drivers[1] and with_torch:
        yield PairDifference("GPU driver", *drivers, 2, "nothing")
    if ours.cpu != theirs.cpu and _counts(needed, _NUMERICAL):
        a, b = set(ours.cpu), set(theirs.cpu)
        only = [" ".join(sorted(each)) or "nothing more" for each in (a - b, b - a)]
        yield PairDifference("CPU", only[0], only[1], 2, "nothing")
    if ours.libc != theirs.libc and scope is None:
        yield PairDifference("libc", ours.libc or "other", theirs.libc or "other", 2, "nothing")


def _counts(needed: frozenset[str] | None, names: Iterable[str]) -> bool:
    return needed is None or not needed.isdisjoint(names)


def unmet(kernel: Facts, asked: Configuration, scope: Scope | None = None) -> Iterator[Difference]:
    """What files ask for and the kernel does not have; workers are compared with the kernel."""
    if asked.python and not _agrees(kernel.python, f"=={asked.python}.*"):
        file = next((name for name in asked.files if name.endswith(("runtime.txt", ".yml"))), "")
        yield _other_python(kernel, asked.python, file or asked.title)
    for each in asked.packages:
        if each.installer == "apt" or each.specifier.startswith("@") or not each.applies:
            continue
        specifier = _conda_to_pip(each.specifier) if each.installer == "conda" else each.specifier
        where = f"{each.file}, line {each.line}"
        if each.name == "python":
            if not asked.python and not _agrees(kernel.python, specifier):
                yield _other_python(kernel, each.specifier, where)
            continue
        name = normal_name(each.name)
        if scope is not None and name not in scope.needed:
            continue
        version = kernel.packages.get(name, "")
        is_missing = not version and each.installer == "pip"
        if is_missing or (version and not _agrees(version, specifier)):
            yield Difference(
                each.name,
                version or _MISSING,
                each.specifier or "any",
                where,
                False,
                f'`%pip install "{each.name}{each.specifier}"`' if each.installer == "pip" else "",
            )


def _other_python(kernel: Facts, wanted: str, where: str) -> Difference:
    fix = f"run the notebook with Python {wanted}"
    return Difference("python", kernel.python, wanted, where, False, fix)


def _conda_to_pip(specifier: str) -> str:
    """``=2.1`` is a prefix for conda; builds and channels are left out."""
    bare = specifier.replace(" ", "")
    if bare.startswith("=") and not bare.startswith("=="):
        return f"=={bare[1:].partition('=')[0].rstrip('.*')}.*"
    return bare


def _agrees(version: str, specifier: str) -> bool:
    try:
        return SpecifierSet(specifier).contains(version, prereleases=True)
    except (InvalidSpecifier, InvalidVersion):
        return True  # not to be judged


def _minor(version: str) -> list[str]:
    return version.split(".")[:2]


def _release(version: str) -> str:
    """Without the label of a build: ``2.13.0`` of ``2.13.0+cpu``."""
    try:
        return Version(version).public
    except InvalidVersion:
        return version


def _with_source(version: str, source: str) -> str:
    return f"{version} ({source})" if source else version


def _where(names: list[str], n_workers: int) -> str:
    if len(names) == n_workers:
        return "all workers" if n_workers > 1 else f"worker {names[0]}"
    if len(names) > 4:
        return f"{len(names)} of {n_workers} workers"
    noun = "worker" if len(names) == 1 else "workers"
    return f"{noun} {', '.join(sorted(names))}"
