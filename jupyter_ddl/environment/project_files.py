"""``pyproject.toml``, ``Pipfile``, ``runtime.txt`` and ``apt.txt``."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from jupyter_ddl.environment.requirements import Declared, parse_requirement, read_requirements
from jupyter_ddl.errors import EnvironmentFileError
from jupyter_ddl.store.packages import normal_name

__all__ = [
    "CondaFile",
    "PartialReading",
    "read_apt",
    "read_conda_file",
    "read_lock",
    "read_pipfile",
    "read_project",
    "read_runtime",
]


# ``environment.yml``: what conda and pip are to install, with the lines where it stands.

_SPEC = re.compile(
    r"(?:(?P<channel>[\w./:-]+)::)?(?P<name>[A-Za-z0-9_][\w.-]*)\s*(?P<rest>[=<>!~ ].*)?"
)
_MAX_CHARS = 256 << 10
"""Reading YAML takes 10 µs a character; what conda exports of a large environment has 40 KiB."""
_PYTHON = re.compile(r"=+\s*(\d+\.\d+(?:\.\d+)*)")


class CondaFile(NamedTuple):
    """Contents of an ``environment.yml``."""

    normal: str
    python: str
    packages: tuple[Declared, ...]
    has_local: bool


class _Located(NamedTuple):
    value: Any
    line: int


def read_conda_file(text: str, name: str, root: Path) -> CondaFile:
    """Read the file's text.

    Raises
    ------
    EnvironmentFileError
        A syntax error, or an entry that conda would not understand; with file and line.
    """
    top = _load(text, name)
    dependencies, channels, variables = _sections(top, name)
    conda: list[str] = []
    packages: list[Declared] = []
    pip: list[str] = []
    python, has_local = "", False
    for entry in dependencies:
        if isinstance(entry.value, str):
            declared = _parse_spec(entry.value, name, entry.line)
            packages.append(declared)
            conda.append(_canonical(entry.value))
            match = _PYTHON.match(declared.specifier) if declared.name == "python" else None
            python = match[1] if match else python
            continue
        for line in _pip_lines(entry, name):
            # One line each, so that a message names the line of the YAML file.
            found = read_requirements("\n" * (line.line - 1) + str(line.value), name, root)
            pip += found.lines
            packages += found.packages
            has_local |= found.has_local
    normal: dict[str, Any] = {
        "channels": channels,
        "conda": sorted(set(conda)),
        "pip": sorted(set(pip)),
    }
    if variables:
        normal["variables"] = variables
    return CondaFile(json.dumps(normal, sort_keys=True), python, tuple(packages), has_local)


def _load(text: str, name: str) -> dict[str, _Located]:
    if len(text) > _MAX_CHARS:
        raise _wrong(name, 1, f"it is larger than {_MAX_CHARS >> 10} KiB")
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = 1 if mark is None else mark.line + 1
        raise _wrong(name, line, f"it is not YAML: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        reason = str(error).splitlines()[0]
        line = text[: getattr(error, "position", 0)].count("\n") + 1
        raise _wrong(name, line, f"it is not YAML: {reason}") from None
    except RecursionError:
        raise _wrong(name, 1, "it is nested too deeply") from None
    if node is None:
        return {}
    if not isinstance(node, yaml.MappingNode):
        raise _wrong(name, 1, "expected `dependencies:` and other keys, not a list or a word")
    return {
        str(key.value): _Located(value, value.start_mark.line + 1)
        for key, value in node.value
        if isinstance(key, yaml.ScalarNode)
    }


def _sections(
    top: dict[str, _Located], name: str
) -> tuple[list[_Located], list[str], dict[str, str]]:
    dependencies = _items(top.get("dependencies"), name, "dependencies")
    channels = [each.value for each in _words(top.get("channels"), name, "channels")]
    variables: dict[str, str] = {}
    node = top.get("variables")
    if node is not None and isinstance(node.value, yaml.MappingNode):
        for key, value in node.value.value:
            if not isinstance(key, yaml.ScalarNode) or not isinstance(value, yaml.ScalarNode):
                line = key.start_mark.line + 1
                raise _wrong(name, line, "a variable's value is not text; expected NAME: text")
            variables[key.value] = value.value
    return dependencies, channels, variables


def _items(section: _Located | None, name: str, key: str) -> list[_Located]:
    """Scalars as text and other nodes as they are, each with its line."""
    if section is None:
        return []
    node = section.value
    if isinstance(node, yaml.ScalarNode) and node.value in ("", "null", "~"):
        return []
    if not isinstance(node, yaml.SequenceNode):
        raise _wrong(
            name, section.line, f"`{key}:` is not a list; expected lines that begin with -"
        )
    return [
        _Located(
            each.value if isinstance(each, yaml.ScalarNode) else each, each.start_mark.line + 1
        )
        for each in node.value
    ]


def _words(section: _Located | None, name: str, key: str) -> list[_Located]:
    """Scalars alone: written out, a few aliases of lists in lists would fill the memory."""
    found = _items(section, name, key)
    for each in found:
        if not isinstance(each.value, str):
            raise _wrong(name, each.line, f"an entry of `{key}:` is not text")
    return found


def _pip_lines(entry: _Located, name: str) -> list[_Located]:
    node = entry.value
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    keys = [key.value for key, _ in pairs if isinstance(key, yaml.ScalarNode)]
    if keys != ["pip"] or len(pairs) > 1:
        seen = f"{keys[0]!r}" if keys else "a list"
        raise _wrong(name, entry.line, f"{seen} is not a dependency; expected a package or `pip:`")
    value = node.value[0][1]
    return _words(_Located(value, value.start_mark.line + 1), name, "pip")


def _parse_spec(text: str, name: str, line: int) -> Declared:
    match = _SPEC.fullmatch(text.strip())
    if match is None:
        raise _wrong(name, line, f"{text!r} is not a package; expected e.g. numpy or numpy>=2.1")
    versions = " ".join((match["rest"] or "").split())
    return Declared(match["name"].lower(), versions, "conda", name, line)


def _canonical(text: str) -> str:
    """Without spaces that mean nothing: ``numpy >= 2`` and ``numpy>=2`` are one."""
    match = _SPEC.fullmatch(text.strip())
    if match is None:
        return text
    rest = re.sub(r"\s*(==|>=|<=|!=|~=|[=<>,|])\s*", r"\1", (match["rest"] or "").strip())
    channel = f"{match['channel']}::" if match["channel"] else ""
    return f"{channel}{match['name'].lower()}{' ' if rest[:1].isalnum() else ''}{rest}"


def _wrong(name: str, line: int, reason: str) -> EnvironmentFileError:
    return EnvironmentFileError(f"{name}, line {line}: {reason}", path=name, line=line)


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
        raise _wrong(name, _line_of(text, "dependencies"), "`dependencies` is not a list")
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
        raise _wrong(name, error.lineno, f"it is not JSON: {error.msg}") from None
    except RecursionError:
        raise _wrong(name, 1, "it is nested too deeply") from None
    if not isinstance(told, dict):
        raise _wrong(name, 1, "it is not a lock file of pipenv")
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
            f"{name}, line 1: {word.splitlines()[0] if word else ''!r} is not a runtime; expected "
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
                f"{name}, line {number}: {bare!r} is not a Debian package; expected one name a "
                "line",
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
        raise _wrong(name, line, f"it is not TOML: {reason}") from None
    except RecursionError:
        raise _wrong(name, 1, "it is nested too deeply") from None


def _table(told: dict[str, Any], key: str, text: str, name: str) -> dict[str, Any]:
    found = told.get(key, {})
    if not isinstance(found, dict):
        raise _wrong(name, _line_of(text, key), f"`{key}` is not a table")
    return found


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
