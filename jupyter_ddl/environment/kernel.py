"""The environment of this very process: what it has loaded, and what is on disk by now."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil

from jupyter_ddl.environment.compare import Scope, needs_of, scope_of
from jupyter_ddl.protocol.facts import Facts
from jupyter_ddl.store.packages import EnvironmentReader, top_levels

__all__ = ["KernelEnvironment", "kernel_environment", "modules_in"]


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
