"""``environment.yml``: what conda and pip are to install, with the lines where it stands."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from jupyter_ddl.environment.configuration import Declared
from jupyter_ddl.environment.requirements import read_requirements
from jupyter_ddl.errors import EnvironmentFileError

__all__ = ["CondaFile", "read_conda_file"]

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
        raise _wrong(name, line, f"it is no YAML: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        reason = str(error).splitlines()[0]
        line = text[: getattr(error, "position", 0)].count("\n") + 1
        raise _wrong(name, line, f"it is no YAML: {reason}") from None
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
                raise _wrong(name, line, "a variable is no text; expected NAME: text")
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
        raise _wrong(name, section.line, f"`{key}:` is no list; expected lines that begin with -")
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
            raise _wrong(name, each.line, f"an entry of `{key}:` is no text")
    return found


def _pip_lines(entry: _Located, name: str) -> list[_Located]:
    node = entry.value
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    keys = [key.value for key, _ in pairs if isinstance(key, yaml.ScalarNode)]
    if keys != ["pip"] or len(pairs) > 1:
        seen = f"{keys[0]!r}" if keys else "a list"
        raise _wrong(name, entry.line, f"{seen} is no dependency; expected a package or `pip:`")
    value = node.value[0][1]
    return _words(_Located(value, value.start_mark.line + 1), name, "pip")


def _parse_spec(text: str, name: str, line: int) -> Declared:
    match = _SPEC.fullmatch(text.strip())
    if match is None:
        raise _wrong(name, line, f"{text!r} is no package; expected e.g. numpy or numpy>=2.1")
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
