"""What the environment of a process is, and what a comparison of two came to.

A worker tells its facts, a kernel has its own; the comparison is a pure function
(:mod:`jupyter_ddl.environment.compare`).
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

__all__ = [
    "CORE",
    "Difference",
    "EnvironmentCall",
    "EnvironmentStatus",
    "EnvironmentVerdict",
    "Facts",
    "Patch",
    "VerdictWord",
    "WheelFile",
    "WorkerEnvironment",
]

VerdictWord: TypeAlias = Literal["same", "drift", "broken"]

CORE = ("dask", "distributed", "jupyter-ddl", "msgspec")
"""What the worker process itself runs on: replaced only by restarting the worker."""


class Facts(msgspec.Struct, frozen=True):
    """One process's environment: what code that is executed there would find."""

    python: str
    """Full version, ``3.12.4``."""
    implementation: str
    machine: str
    """``x86_64``, ``aarch64`` …"""
    packages: dict[str, str]
    """Version by normalised name: of what is loaded, else of what is on disk."""
    sources: dict[str, str] = {}
    """Where packages come from that no index has: the URL of a checkout or a repository."""
    held: dict[str, str] = {}
    """Packages that were replaced after they had been loaded: version on disk, empty for none."""
    blas: str = ""
    torch_build: str = ""
    """What torch was built for: ``cpu``, ``CUDA 12.8``, ``ROCm 6.4``; empty without torch."""
    gpu_driver: str = ""
    cpu: tuple[str, ...] = ()
    """Vector instructions, of those that numerical libraries choose their code by."""
    libc: str = ""


class Difference(msgspec.Struct, frozen=True):
    """One line of a comparison."""

    what: str
    kernel: str
    other: str
    where: str
    """Workers by name, or the file that asks for something else."""
    breaks: bool
    fix: str
    """The command, or what to do."""


class EnvironmentVerdict(msgspec.Struct, frozen=True):
    """What a comparison came to; ``differences`` has those that count, the worst first."""

    word: VerdictWord = "same"
    differences: tuple[Difference, ...] = ()
    others: tuple[Difference, ...] = ()
    """Of what nothing in question imports: no part of the verdict."""

    @property
    def fix(self) -> str:
        """What to do about the worst difference; empty without one."""
        return self.differences[0].fix if self.differences else ""


class EnvironmentStatus(msgspec.Struct, frozen=True):
    """The last verdict that a kernel had of a cluster."""

    word: VerdictWord
    text: str
    """One line: what differs most; empty for the same environment."""
    fix: str


class WheelFile(msgspec.Struct, frozen=True):
    """A wheel that no index has, by content."""

    name: str
    digest: str
    size_bytes: int
    origin: str = ""
    """Where the kernel has the package from, as its ``direct_url.json`` tells; kept with it."""


class PackageContents(msgspec.Struct, frozen=True):
    """What the kernel's installer got; elsewhere the same version may be something else."""

    tags: tuple[str, ...]
    """Pythons and platforms of its wheel, sorted: ``py3-none-any``."""
    digest: str
    """Of its files."""


class Patch(msgspec.Struct, frozen=True):
    """Packages that workers get on top of what they have, in versions that are given exactly."""

    requirements: tuple[str, ...] = ()
    """``name==version`` or ``name @ url``, one per package."""
    wheels: tuple[WheelFile, ...] = ()
    """Locally built ones; their packages are among the requirements."""
    made_at_s: float = 0.0
    """Unix seconds.  A later patch is applied even if it installs nothing: ranks start over."""
    contents: dict[str, PackageContents] = {}
    """By package, of those whose wheel is known: no other one is installed."""


class EnvironmentCall(msgspec.Struct, frozen=True):
    """What a worker is asked: its facts, after it has installed ``patch`` if one is given."""

    known: tuple[str, ...] = ()
    """Digests of facts that need not be sent."""
    patch: Patch | None = None
    wheels: dict[str, bytes] = {}
    """Contents of the patch's wheels by file name."""


class WorkerEnvironment(msgspec.Struct, frozen=True):
    """A worker's answer."""

    digest: str
    facts: Facts | None = None
    """None where the digest is known."""
    error: str = ""
    """Why the patch could not be installed: the last lines of the installer."""
