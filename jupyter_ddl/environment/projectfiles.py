"""``pyproject.toml``, ``Pipfile``, ``runtime.txt`` and ``apt.txt``."""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any, NamedTuple

from jupyter_ddl.environment.configuration import Declared
from jupyter_ddl.environment.requirements import parse_requirement
from jupyter_ddl.errors import EnvironmentFileError
from jupyter_ddl.worker.facts import normal_name

__all__ = [
    "PartialReading",
    "read_apt",
    "read_lock",
    "read_pipfile",
    "read_project",
    "read_runtime",
]

_APT_NAME = re.compile(r"[a-z0-9][a-z0-9.+-]*")
_RUNTIME = re.compile(
    r"(?P<name>[A-Za-z]+)(?:-(?P<version>[\d.]+))?(?:-(?P<date>\d{4}-\d\d-\d\d))?"
)


class PartialReading(NamedTuple):
    """What one file adds."""

    normal: str
    packages: tuple[Declared, ...] = ()
    python: str = ""
    runtime: str = ""
    """Language of a ``runtime.txt``."""


def read_project(text: str, name: str) -> PartialReading:
    """``pyproject.toml``: the project's own dependencies.

    Raises
    ------
    EnvironmentFileError
        A syntax error, or a dependency that is none; with file and line.
    """
    told = _toml(text, name)
    project = told.get("project", {})
    dependencies = project.get("dependencies", []) if isinstance(project, dict) else []
    packages = tuple(
        parse_requirement(str(each), name, _line_of(text, str(each))) for each in dependencies
    )
    kept = {key: told[key] for key in ("project", "build-system", "tool") if key in told}
    return PartialReading(json.dumps(kept, sort_keys=True, default=str), packages)


def read_pipfile(text: str, name: str) -> PartialReading:
    """``Pipfile``."""
    told = _toml(text, name)
    packages = tuple(
        Declared(normal_name(key), _pipfile_versions(value), "pip", name, _line_of(text, key))
        for key, value in told.get("packages", {}).items()
    )
    requires = told.get("requires", {})
    python = str(requires.get("python_full_version") or requires.get("python_version") or "")
    return PartialReading(json.dumps(told, sort_keys=True, default=str), packages, python)


def read_lock(text: str, name: str) -> PartialReading:
    """``Pipfile.lock``: exact versions."""
    try:
        told = json.loads(text)
    except json.JSONDecodeError as error:
        raise EnvironmentFileError(
            f"{name}, line {error.lineno}: it is no JSON: {error.msg}", path=name, line=error.lineno
        ) from None
    packages = tuple(
        Declared(normal_name(key), str(value.get("version", "")), "pip", name, _line_of(text, key))
        for key, value in told.get("default", {}).items()
    )
    python = str(told.get("_meta", {}).get("requires", {}).get("python_version", ""))
    return PartialReading(json.dumps(told, sort_keys=True), packages, python)


def read_runtime(text: str, name: str) -> PartialReading:
    """``runtime.txt``: ``python-3.12``, ``r-4.4-2025-06-01`` or the like."""
    word = text.strip()
    match = _RUNTIME.fullmatch(word)
    if match is None or not (match["version"] or match["date"]):
        raise EnvironmentFileError(
            f"{name}, line 1: {word.splitlines()[0] if word else ''!r} is no runtime; expected "
            f"e.g. python-3.12",
            path=name,
            line=1,
        )
    language = match["name"]
    python = (match["version"] or "") if language == "python" else ""
    return PartialReading(word, python=python, runtime=f"{language} {match['date'] or ''}".strip())


def read_apt(text: str, name: str) -> PartialReading:
    """``apt.txt``: Debian packages, one a line."""
    packages = []
    for number, line in enumerate(text.splitlines(), start=1):
        bare = line.partition("#")[0].strip()
        if not bare:
            continue
        if not _APT_NAME.fullmatch(bare):
            raise EnvironmentFileError(
                f"{name}, line {number}: {bare!r} is no Debian package; expected one name a line",
                path=name,
                line=number,
            )
        packages.append(Declared(bare, "", "apt", name, number))
    return PartialReading("\n".join(sorted({each.name for each in packages})), tuple(packages))


def _toml(text: str, name: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        match = re.search(r"line (\d+)", str(error))
        line = int(match[1]) if match else text.count("\n") + 1
        reason = str(error).partition(" (at")[0]
        raise EnvironmentFileError(
            f"{name}, line {line}: it is no TOML: {reason}", path=name, line=line
        ) from None


def _pipfile_versions(value: Any) -> str:
    if isinstance(value, dict):
        value = value.get("version") or (f"@ {value['git']}" if "git" in value else "")
    return "" if value == "*" else str(value)


def _line_of(text: str, word: str) -> int:
    at = text.find(word)
    return 1 if at < 0 else text.count("\n", 0, at) + 1
