"""What the environment of a process is: read from disk and from what the process has loaded.

Nothing is imported for it.  The same code reads a worker's environment and a kernel's.
"""

from __future__ import annotations

import json
import os
import platform
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec

from jupyter_ddl.protocol.facts import Facts
from jupyter_ddl.store.blobs import digest_of

__all__ = ["EnvironmentReader", "Installed", "normal_name", "scan", "top_levels"]

_CPU_FLAGS = frozenset({
    "sse4_2", "avx", "f16c", "fma", "avx2", "avx512f", "avx512vl", "avx512_bf16", "avx512_vnni",
    "amx_bf16", "asimd", "bf16", "i8mm", "sve", "sve2",
})  # fmt: skip
_DRIVER = Path("/proc/driver/nvidia/version")
_SEPARATORS = re.compile(r"[-_.]+")
_EGG_PYTHON = re.compile(r"-py\d+(\.\d+)?$")


class Installed(NamedTuple):
    """A distribution on disk."""

    version: str
    directory: str
    """Its ``.dist-info`` or ``.egg-info``."""


class EnvironmentReader:
    """Facts of one process, read again only when a directory of packages has changed.

    Parameters
    ----------
    path : sequence of str
        Directories that packages are imported from, as in ``sys.path``.
    """

    def __init__(self, path: Sequence[str]) -> None:
        self._path: tuple[str, ...] = ()
        self.use_path(path)
        self._stamp: object = None
        self._installed: dict[str, Installed] = {}
        self._loaded: dict[str, Mapping[str, Installed]] = {}
        self._replaced: dict[str, str] = {}
        self._facts: Facts | None = None
        self._digest = ""

    def use_path(self, path: Sequence[str]) -> None:
        """Look into these directories from now on."""
        self._path = tuple(each for each in path if each)

    def note_loaded(self, names: Iterable[str]) -> None:
        """Take note of top-level modules that the process has loaded, in the versions of now."""
        new = [name for name in names if name not in self._loaded]
        if new:
            self._refresh()
            self._loaded.update(dict.fromkeys(new, self._installed))
            self._facts = None

    def note_replaced(self, versions: Mapping[str, str]) -> None:
        """Take note of packages that were replaced before this reader was there.

        Parameters
        ----------
        versions
            By normalised name: the version that the process has loaded.
        """
        self._replaced.update(versions)
        self._facts = None

    @property
    def installed(self) -> Mapping[str, Installed]:
        """What is on disk now, by normalised name."""
        self._refresh()
        return self._installed

    @property
    def stamp(self) -> object:
        """Changes whenever something is installed or removed."""
        return _stamp(self._path)

    def facts(self) -> Facts:
        """The facts of now."""
        self._refresh()
        if self._facts is None:
            self._facts = self._read()
            self._digest = digest_of(msgspec.json.encode(self._facts, order="sorted"))
        return self._facts

    @property
    def digest(self) -> str:
        """Of the facts of now; the same for the same environment."""
        self.facts()
        return self._digest

    def _refresh(self) -> None:
        stamp = self.stamp
        if stamp != self._stamp:
            self._stamp = stamp
            self._facts = None
            installed = scan(self._path)
            if installed != self._installed:
                self._installed = installed

    def _read(self) -> Facts:
        packages = {name: each.version for name, each in self._installed.items()}
        held: dict[str, str] = {}
        for name, version in self._held().items():
            if packages.get(name) != version:
                held[name] = packages.get(name, "")
                packages[name] = version
        return Facts(
            python=platform.python_version(),
            implementation=sys.implementation.name,
            machine=platform.machine(),
            packages=dict(sorted(packages.items())),
            sources=_sources(self._installed),
            held=held,
            blas=_blas(self._installed),
            torch_build=_torch_build(self._installed),
            gpu_driver=_gpu_driver(),
            cpu=_cpu(),
            libc=_libc(),
        )

    def _held(self) -> dict[str, str]:
        """Versions of what was loaded and is not on disk any more."""
        held = dict(self._replaced)
        snapshots = {id(each): each for each in self._loaded.values()}
        for key, before in snapshots.items():
            if before is self._installed:
                continue
            loaded = {name for name, each in self._loaded.items() if id(each) == key}
            for name, old in before.items():
                now = self._installed.get(name)
                if now is None or now.version != old.version:
                    tops = {name.replace("-", "_")} if now is None else top_levels(name, now)
                    if tops & loaded:
                        held[name] = old.version
        return held


def normal_name(name: str) -> str:
    """A distribution's name as indexes compare it: ``Foo_bar`` and ``foo-bar`` are one."""
    return _SEPARATORS.sub("-", name).lower()


def scan(path: Sequence[str]) -> dict[str, Installed]:
    """Distributions in directories, the first one of a name winning as in an import.

    Names and versions stand in the names of directories, so that nothing is opened.
    """
    found: dict[str, Installed] = {}
    for directory in path:
        try:
            entries = [each.name for each in os.scandir(directory)]
        except OSError:  # a zip file, or a directory that is not there
            continue
        here: dict[str, Installed] = {}
        for entry in sorted(entries):
            stem, _, kind = entry.rpartition(".")
            if kind not in ("dist-info", "egg-info"):
                continue
            name, _, version = stem.partition("-")
            place = str(Path(directory) / entry)
            if kind == "egg-info":
                version = _EGG_PYTHON.sub("", version) or _egg_version(place)
            key, each = normal_name(name), Installed(version, place)
            here[key] = _newer(here[key], each) if key in here else each
        found = {**here, **found}
    return found


def _newer(one: Installed, other: Installed) -> Installed:
    """Of two records in one directory: ``pip install --target --upgrade`` leaves the old one."""
    try:
        times = [Path(each.directory).stat().st_mtime_ns for each in (one, other)]
    except OSError:
        return one
    return one if times[0] > times[1] else other


def _egg_version(place: str) -> str:
    file = Path(place, "PKG-INFO") if Path(place).is_dir() else Path(place)
    match = re.search(r"^Version: (.+)$", _text(file), re.MULTILINE)
    return match[1].strip() if match else ""


@cache
def top_levels(name: str, installed: Installed) -> frozenset[str]:
    """Modules that a distribution brings, by their top-level names."""
    directory = Path(installed.directory)
    listed = _text(directory / "top_level.txt").split()
    if not listed:
        for line in _text(directory / "RECORD").splitlines():
            first, slash, _ = line.partition(",")[0].partition("/")
            if slash and not first.endswith((".dist-info", ".data")) and first != "..":
                listed.append(first)
            elif first.endswith((".py", ".so")):
                listed.append(first.partition(".")[0])
    return frozenset({*listed, name.replace("-", "_")} - {"__pycache__"})


def _stamp(path: Sequence[str]) -> tuple[tuple[str, int], ...]:
    found = []
    for directory in path:
        try:
            found.append((directory, Path(directory).stat().st_mtime_ns))
        except OSError:
            found.append((directory, 0))
    return tuple(found)


def _sources(installed: Mapping[str, Installed]) -> dict[str, str]:
    found = {}
    for name, each in installed.items():
        text = _text(Path(each.directory, "direct_url.json"))
        if text:
            found[name] = _source(text)
    return {name: source for name, source in sorted(found.items()) if source}


def _source(text: str) -> str:
    """The URL of a checkout, a directory or a repository (with its commit)."""
    try:
        told = json.loads(text)
        url = str(told["url"])
    except (ValueError, KeyError, TypeError):
        return ""
    vcs = told.get("vcs_info", {})
    if vcs:
        return f"{vcs.get('vcs', 'git')}+{url}@{vcs.get('commit_id', '')}"
    if told.get("dir_info", {}).get("editable"):
        return f"editable {url}"
    return url if "dir_info" in told else ""


def _blas(installed: Mapping[str, Installed]) -> str:
    """What numpy was built with, out of the source of its ``__config__``."""
    numpy = installed.get("numpy")
    if numpy is None:
        return ""
    text = _text(Path(numpy.directory).parent / "numpy" / "__config__.py")
    match = re.search(r'"blas": (\{.*?\})', text, re.DOTALL)
    if match is None:
        return ""
    told = dict(re.findall(r'"(name|version)": r?"([^"]*)"', match[1]))
    return " ".join(told[key] for key in ("name", "version") if told.get(key))


def _torch_build(installed: Mapping[str, Installed]) -> str:
    torch = installed.get("torch")
    if torch is None:
        return ""
    text = _text(Path(torch.directory).parent / "torch" / "version.py")
    for name, label in (("cuda", "CUDA"), ("hip", "ROCm")):
        match = re.search(rf"^{name}\b[^=]*= *['\"]([^'\"]+)['\"]", text, re.MULTILINE)
        if match:
            return f"{label} {match[1]}"
    return "cpu"


def _gpu_driver() -> str:
    match = re.search(r"Module\D*?(\d+(?:\.\d+)+)", _text(_DRIVER))
    return match[1] if match else ""


@cache
def _cpu() -> tuple[str, ...]:
    match = re.search(r"^(?:flags|Features)\s*:(.*)$", _text(Path("/proc/cpuinfo")), re.MULTILINE)
    return tuple(sorted(_CPU_FLAGS & set(match[1].split()))) if match else ()


@cache
def _libc() -> str:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):  # not glibc
        return ""


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
