"""What failed in a failed build, and the line of the file that asked for it.  Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from jupyter_ddl.environment.configuration import Configuration
from jupyter_ddl.worker.facts import normal_name

__all__ = ["BuildFailure", "explain_failure", "step_in", "tail_of"]

_TAIL = 12
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_STEP = re.compile(r"^#\d+ (?:\d+\.\d+ )?")
_PROGRESS = re.compile(
    r"^(?:#\d+ \[(?:[\w.-]+ )? *|STEP )(?P<n>\d+)/(?P<of>\d+)(?:\] |: )(?P<what>.+)"
)
_FROM_FILE = re.compile(r"\(from -r (?P<file>[^\s(]+) \(line (?P<line>\d+)\)\)")
_SCRIPT = re.compile(r"(?P<file>(?:[\w.]+/)*(?:postBuild|start|install\.R)): line (?P<line>\d+): ")
_PACKAGES = (
    re.compile(r"No matching distribution found for (?P<name>[\w.-]+)"),
    re.compile(r"satisfies the requirement (?P<name>[\w.-]+)"),
    re.compile(r"nothing provides(?: requested)? (?P<name>[\w.-]+)"),
    re.compile(r"(?:└─|├─|-)\s*(?P<name>[\w.-]+)\s.*does not exist"),
    re.compile(r"PackagesNotFoundError.*?- (?P<name>[\w.-]+)"),
    re.compile(r"Unable to locate package (?P<name>[\w.+-]+)"),
    re.compile(r"Could not find (?:a|any) .*?named? ['\"]?(?P<name>[\w.-]+)"),
)
_ERRORS = re.compile(r"^(?:ERROR|E|error|Error|CondaError|critical\s+libmamba)\b:?|Error: ")
_NOISE = re.compile(r"failed to (?:solve|build)|exit code|did not complete|Error during build")


class BuildFailure(NamedTuple):
    """Why a build ended; ``file`` is empty where no file of the directory is at fault."""

    reason: str
    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        place = f"{self.file}, line {self.line}: " if self.file else ""
        return f"{place}{self.reason}"


def explain_failure(log: Sequence[str], configuration: Configuration) -> BuildFailure:
    """The first cause in a log, by what pip, conda, apt and shells say.

    Parameters
    ----------
    log : sequence of str
        Lines, in order.
    configuration : Configuration
        Which file asked for what.
    """
    lines = [_clean(line) for line in log]
    lines = [line for line in lines if line]
    for line in lines:
        found = _FROM_FILE.search(line) or _SCRIPT.search(line)
        if found and (_ERRORS.search(line) or found.re is _SCRIPT):
            return BuildFailure(_reason(line), found["file"], int(found["line"]))
    for line in lines:
        for pattern in _PACKAGES:
            match = pattern.search(line)
            if match:
                file, number = _asked_in(match["name"], configuration)
                return BuildFailure(_reason(line), file, number)
    errors = [line for line in lines if _ERRORS.search(line)]
    telling = [line for line in errors if not _NOISE.search(line)] or errors or lines[-1:]
    return BuildFailure(_reason(telling[0]) if telling else "it ended without a word")


def step_in(line: str) -> str:
    """What docker, or podman, begins with in a line of the log; empty if it begins with nothing."""
    found = _PROGRESS.match(_ANSI.sub("", line))
    return f"step {found['n']} of {found['of']}: {found['what'].strip()[:60]}" if found else ""


def tail_of(log: Sequence[str]) -> list[str]:
    """The last lines that say something."""
    return [line for line in map(_clean, log) if line][-_TAIL:]


def _asked_in(name: str, configuration: Configuration) -> tuple[str, int]:
    wanted = normal_name(name)
    for each in configuration.packages:
        if normal_name(each.name) == wanted:
            return each.file, each.line
    return "", 0


def _clean(line: str) -> str:
    return _STEP.sub("", _ANSI.sub("", line)).strip()


def _reason(line: str) -> str:
    text = _FROM_FILE.sub("", line)
    text = re.sub(r"^(?:ERROR|E|error):\s*", "", text)
    return " ".join(text.split()).rstrip(".")[:300]
