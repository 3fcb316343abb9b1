"""What a binder directory asks for, whichever files say it."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

__all__ = ["Configuration", "Declared", "Installer"]

Installer: TypeAlias = Literal["pip", "conda", "apt"]


class Declared(msgspec.Struct, frozen=True):
    """A package that a file asks for."""

    name: str
    """As the installer compares names."""
    specifier: str
    """Normal form of the versions that will do; empty for any."""
    installer: Installer
    file: str
    """Relative to the directory, with forward slashes."""
    line: int
    applies: bool = True
    """Whether its environment marker holds for this Python."""


class Configuration(msgspec.Struct, frozen=True):
    """One directory, read as repo2docker reads it.

    Attributes
    ----------
    directory : str
        Absolute path of the repository (not of ``binder/`` in it).
    buildpack : str
        Who builds it: ``docker``, ``julia``, ``nix``, ``r``, ``conda``, ``pipfile`` or ``python``.
    files : dict of str
        The normal form of every file that counts, by its relative path.
    ignored : tuple of str
        Files of another buildpack, which repo2docker does not look at.
    python : str
        Version that is asked for, ``3.12``; empty where none is.
    packages : tuple of Declared
        In the order of name.
    digest : str
        Hexadecimal; the same for configurations that mean the same.
    """

    directory: str
    buildpack: str
    files: dict[str, str]
    ignored: tuple[str, ...]
    python: str
    packages: tuple[Declared, ...]
    digest: str

    @property
    def title(self) -> str:
        """Where it stands, short enough for a message."""
        return ", ".join(self.files)
