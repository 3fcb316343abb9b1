"""``requirements.txt`` and its relatives: parsed line by line, in a form that can be compared."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import msgspec
from packaging.requirements import InvalidRequirement, Requirement

from jupyter_ddl.errors import EnvironmentFileError
from jupyter_ddl.store.packages import normal_name

__all__ = [
    "Configuration",
    "Declared",
    "Installer",
    "Requirements",
    "parse_requirement",
    "read_requirements",
]


# What a binder directory asks for, whichever files say it.

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


_COMMENT = re.compile(r"(^|\s)#.*$")
_INCLUDE = re.compile(r"(?:-r|--requirement|-c|--constraint)(?:\s+|=)(.+)")
_FLAGS_WITH_VALUE = re.compile(r"(-[a-zA-Z]|--[a-z-]+)(?:[\s=]+(.*))?$")
_OPTIONS = frozenset({
    "-i", "--index-url", "--extra-index-url", "--no-index", "-f", "--find-links", "--pre",
    "--no-binary", "--only-binary", "--prefer-binary", "--require-hashes", "--trusted-host",
    "--use-feature", "-e", "--editable",
})  # fmt: skip
_PLACE = re.compile(r"^(?:\.{1,2}(?:/|$|\[)|/|file:)|^[\w.+-]+://|^[\w./+-]+\.(?:whl|zip|tar\.gz)$")
_MAX_DEPTH = 10


class Requirements(NamedTuple):
    """Contents of requirement files."""

    lines: tuple[str, ...]
    """Normal form: options in their order, then requirements sorted."""
    packages: tuple[Declared, ...]
    has_local: bool
    """Whether something is installed from the directory itself."""


def read_requirements(text: str, name: str, root: Path, depth: int = 0) -> Requirements:
    """Read a file with all that it includes.

    Parameters
    ----------
    text : str
        Contents.
    name : str
        Path relative to ``root``, for messages.
    root : Path
        The directory that relative paths in ``name`` begin at.

    Raises
    ------
    EnvironmentFileError
        A line is neither a requirement nor an option of pip; with file and line.
    """
    options: list[str] = []
    requirements: list[str] = []
    packages: list[Declared] = []
    has_local = False
    for number, line in _logical_lines(text):
        included = _INCLUDE.fullmatch(line)
        if included:
            inner = _include(included[1], name, number, root, depth)
            constraint = line.startswith(("-c", "--constraint"))
            mark = "-c " if constraint else ""
            requirements += [f"{mark}{each}" for each in inner.lines]
            packages += [] if constraint else inner.packages
            has_local |= inner.has_local
        elif line.startswith("-"):
            has_local |= _check_option(line, name, number)
            options.append(" ".join(line.replace("=", " ", 1).split()))
        elif _PLACE.search(line):
            has_local |= not re.match(r"^(?!file:)[\w.+-]+://", line)
            requirements.append(line)
        else:
            declared = parse_requirement(line, name, number)
            requirements.append(_canonical(line))
            packages.append(declared)
    return Requirements((*options, *sorted(set(requirements))), tuple(packages), has_local)


def parse_requirement(text: str, file: str, line: int) -> Declared:
    """One PEP 508 requirement.

    Raises
    ------
    EnvironmentFileError
        It is none.
    """
    bare = re.split(r"\s--hash\b", text)[0].strip()
    try:
        found = Requirement(bare)
    except InvalidRequirement as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise EnvironmentFileError(
            f"{file}, line {line}: {bare!r} is not a requirement ({reason}); expected a package "
            "with versions, e.g. numpy>=2.1",
            path=file,
            line=line,
        ) from None
    specifier = f"@ {found.url}" if found.url else str(found.specifier)
    applies = found.marker is None or found.marker.evaluate({"extra": ""})
    return Declared(normal_name(found.name), specifier, "pip", file, line, applies)


def _canonical(line: str) -> str:
    bare, *hashes = re.split(r"\s--hash[=\s]", line)
    found = Requirement(bare.strip())
    extras = f"[{','.join(sorted(normal_name(each) for each in found.extras))}]"
    versions = ",".join(sorted(str(each) for each in found.specifier))
    parts = [normal_name(found.name), extras if found.extras else "", versions]
    parts.append(f" @ {found.url}" if found.url else "")
    parts.append(f" ; {found.marker}" if found.marker else "")
    return "".join(parts) + "".join(f" --hash={each.strip()}" for each in sorted(hashes))


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """(number of the first physical line, text without comments), continued lines joined."""
    pending, first = "", 0
    for number, line in enumerate(text.splitlines(), start=1):
        first = first if pending else number
        stripped = line.strip()
        if stripped.startswith("#"):
            continued, pending = pending, ""
            line = continued
        elif line.endswith("\\"):
            pending += line[:-1] + " "
            continue
        else:
            line, pending = pending + line, ""
        bare = " ".join(_COMMENT.sub("", line).split())
        if bare:
            yield first, bare
    if pending.strip():
        yield first, " ".join(_COMMENT.sub("", pending).split())


def _include(target: str, name: str, line: int, root: Path, depth: int) -> Requirements:
    if "://" in target:
        return Requirements((f"include {target}",), (), False)
    path = Path(name).parent / target.strip("\"'")
    if depth >= _MAX_DEPTH:
        raise EnvironmentFileError(
            f"{name}, line {line}: files include each other more than {_MAX_DEPTH} deep",
            path=name,
            line=line,
        )
    try:
        text = (root / path).read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise EnvironmentFileError(
            f"{name}, line {line}: {target} cannot be read ({reason})", path=name, line=line
        ) from None
    return read_requirements(text, path.as_posix(), root, depth + 1)


def _check_option(line: str, name: str, number: int) -> bool:
    """Whether an option installs from the directory itself; refuses what pip does not know."""
    match = _FLAGS_WITH_VALUE.match(line)
    flag = match[1] if match else line.split()[0]
    if flag not in _OPTIONS:
        raise EnvironmentFileError(
            f"{name}, line {number}: {flag!r} is not an option of a requirements file",
            path=name,
            line=number,
        )
    target = (match[2] if match else None) or ""
    return flag in ("-e", "--editable") and "://" not in target.replace("file://", "")
