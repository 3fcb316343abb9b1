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
    has_local: bool = False
    """Whether something is installed from the directory itself."""


def read_project(text: str, name: str) -> PartialReading:
    """``pyproject.toml``: the project's own dependencies.

    Raises
    ------
    EnvironmentFileError
        A syntax error, or a dependency that is none; with file and line.
    """
    told = _toml(text, name)
    project = _table(told, "project", text, name)
    dependencies = project.get("dependencies", [])
    if not isinstance(dependencies, list):
        raise _wrong(name, _line_of(text, "dependencies"), "`dependencies` is no list")
    packages = tuple(
        parse_requirement(str(each), name, _line_of(text, str(each))) for each in dependencies
    )
    python = project.get("requires-python")
    if isinstance(python, str):
        line = _line_of(text, "requires-python")
        packages += (Declared("python", python, "pip", name, line),)
    kept = {key: told[key] for key in ("project", "build-system", "tool") if key in told}
    return PartialReading(json.dumps(kept, sort_keys=True, default=str), packages)


def read_pipfile(text: str, name: str) -> PartialReading:
    """``Pipfile``."""
    told = _toml(text, name)
    wanted = _table(told, "packages", text, name)
    packages = tuple(
        Declared(normal_name(key), _pipfile_versions(value), "pip", name, _line_of(text, key))
        for key, value in wanted.items()
    )
    requires = _table(told, "requires", text, name)
    python = str(requires.get("python_full_version") or requires.get("python_version") or "")
    normal = json.dumps(told, sort_keys=True, default=str)
    return PartialReading(normal, packages, python, has_local=_has_local(wanted))


def read_lock(text: str, name: str) -> PartialReading:
    """``Pipfile.lock``: exact versions."""
    try:
        told = json.loads(text)
    except json.JSONDecodeError as error:
        raise _wrong(name, error.lineno, f"it is no JSON: {error.msg}") from None
    except RecursionError:
        raise _wrong(name, 1, "it is nested too deeply") from None
    if not isinstance(told, dict):
        raise _wrong(name, 1, "it is no lock of pipenv")
    locked = _table(told, "default", text, name)
    packages = tuple(
        Declared(normal_name(key), _pipfile_versions(value), "pip", name, _line_of(text, key))
        for key, value in locked.items()
    )
    meta = _table(told, "_meta", text, name)
    python = str(_table(meta, "requires", text, name).get("python_version", ""))
    normal = json.dumps(told, sort_keys=True)
    return PartialReading(normal, packages, python, has_local=_has_local(locked))


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
    if language == "python" and (match["version"] or "").count(".") > 1:
        minor = ".".join(match["version"].split(".")[:2])
        raise _wrong(name, 1, f"{word!r}; repo2docker takes a minor version, python-{minor}")
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
        raise _wrong(name, line, f"it is no TOML: {reason}") from None
    except RecursionError:
        raise _wrong(name, 1, "it is nested too deeply") from None


def _table(told: dict[str, Any], key: str, text: str, name: str) -> dict[str, Any]:
    found = told.get(key, {})
    if not isinstance(found, dict):
        raise _wrong(name, _line_of(text, key), f"`{key}` is no table")
    return found


def _wrong(name: str, line: int, reason: str) -> EnvironmentFileError:
    return EnvironmentFileError(f"{name}, line {line}: {reason}", path=name, line=line)


def _has_local(wanted: dict[str, Any]) -> bool:
    return any(
        isinstance(each, dict) and "://" not in str(each.get("path", each.get("file", "://")))
        for each in wanted.values()
    )


def _pipfile_versions(value: Any) -> str:
    if isinstance(value, dict):
        value = value.get("version") or (f"@ {value['git']}" if "git" in value else "")
    return "" if value == "*" else str(value)


def _line_of(text: str, word: str) -> int:
    at = text.find(word)
    return 1 if at < 0 else text.count("\n", 0, at) + 1
