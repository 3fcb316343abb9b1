"""Builds the image of a binder directory with repo2docker, and pushes it: once per configuration.

Nothing is built unless somebody asks, and every step is told.  Without a container engine or a
registry nothing can be built; then a base image and ``%cluster env sync`` do.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, NamedTuple

import msgspec

from jupyter_ddl.environment.image_choice import ImageReference, built_image
from jupyter_ddl.environment.requirements import Configuration
from jupyter_ddl.errors import ImageError
from jupyter_ddl.store.packages import normal_name

__all__ = [
    "BuildFailure",
    "BuildPlan",
    "build_image",
    "explain_failure",
    "find_engine",
    "lacks_worker",
    "plan_build",
    "step_in",
    "tail_of",
]


# What failed in a failed build, and the line of the file that asked for it.  Pure.

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
    return BuildFailure(_reason(telling[0]) if telling else "it ended without any output")


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


_USER_ID, _USER_NAME = "1000", "jovyan"
"""As in BinderHub's images: the same image, whoever builds it."""
_PROBE_TIMEOUT_S = 15.0
_N_KEPT = 2_000
_INSTEAD = (
    "start with a base image (`--env IMAGE`) and let `%cluster env sync` install what it lacks"
)
_PHASES = {"fetching": "reading the directory", "pushing": "pushing it"}

OnPhase = Callable[[str], None]


class BuildPlan(msgspec.Struct, frozen=True):
    """An image that could be built."""

    image: ImageReference
    configuration: Configuration
    command: tuple[str, ...]

    @property
    def title(self) -> str:
        """What is said before it is built."""
        return f"{self.image} from {self.configuration.title}"


def plan_build(configuration: Configuration, registry: str) -> BuildPlan:
    """The name of a directory's image, and the command that builds and pushes it.

    Parameters
    ----------
    registry : str
        Where the cluster finds it: ``registry.example:5000/team``.

    Raises
    ------
    ImageError
        No registry, or none that is one; or the image would have no ``jupyter_ddl``.
    """
    if not registry:
        raise ImageError(
            f"--env {configuration.directory}: its image has to be pushed to where workers can "
            f"pull it; pass --registry HOST/PATH, or {_INSTEAD}"
        )
    if lacks_worker(configuration):
        raise ImageError(
            f"{configuration.title} does not ask for jupyter_ddl, which workers run on; add a line "
            f"with jupyter_ddl, or {_INSTEAD}"
        )
    image = built_image(configuration, registry)
    command = (
        *(sys.executable, "-m", "repo2docker", "--json-logs", "--no-run", "--push"),
        *("--user-id", _USER_ID, "--user-name", _USER_NAME),
        *("--image-name", str(image), configuration.directory),
    )
    return BuildPlan(image, configuration, command)


def lacks_worker(configuration: Configuration) -> bool:
    """Whether workers could not run in the image; False where only a build could tell."""
    tells = configuration.buildpack in ("conda", "pipfile", "python")
    scripted = any(name.endswith("postBuild") for name in configuration.files)
    itself = "the repository's own code" in configuration.files
    asked = any(each.name in ("jupyter-ddl", "jupyter_ddl") for each in configuration.packages)
    return tells and not (asked or scripted or itself)


def find_engine(environ: Mapping[str, str] = os.environ) -> str:
    """The container engine that repo2docker would use here: ``docker`` or ``podman``.

    Parameters
    ----------
    environ : mapping
        ``DOCKER_HOST`` chooses podman where it names podman's socket.

    Raises
    ------
    ImageError
        repo2docker is not installed, or there is no engine that answers; says what else to do.
    """
    if importlib.util.find_spec("repo2docker") is None:
        raise ImageError(
            f"building an image needs repo2docker: `%pip install jupyter_ddl[image]`; or {_INSTEAD}"
        )
    # repo2docker's own rule.
    engine = "podman" if "podman" in environ.get("DOCKER_HOST", "") else "docker"
    reason = f"there is no {engine} command" if shutil.which(engine) is None else _probe(engine)
    if not reason:
        return engine
    hint = ""
    if engine == "docker" and shutil.which("podman") is not None:
        hint = " (podman is here: set DOCKER_HOST to its socket)"
    raise ImageError(
        f"no container engine can build an image here: {reason}{hint}; build it where one runs, "
        f"or {_INSTEAD}"
    )


def build_image(plan: BuildPlan, on_phase: OnPhase, *, timeout_s: float = 3600.0) -> ImageReference:
    """Build and push, unless the registry has the image already.

    Parameters
    ----------
    on_phase : callable
        Gets one short sentence per step, the first one before anything is built.
    timeout_s : float
        For the whole build.

    Raises
    ------
    ImageError
        No engine, or the build failed: one line with file and line where they are known.  Its
        field ``log`` has the last lines.
    """
    engine = find_engine()
    on_phase(f"looking for {plan.image}")
    if _is_pushed(engine, plan.image):
        on_phase("it exists already: nothing is built")
        return plan.image
    on_phase(f"building {plan.title}")
    _run([*plan.command], plan, on_phase, timeout_s)
    return plan.image


def _probe(engine: str) -> str:
    """Why an engine does not serve; empty if it does."""
    try:
        done = subprocess.run(
            [engine, "version"],
            capture_output=True,
            text=True,
            timeout=_PROBE_TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    return "" if done.returncode == 0 else (lines or ["it does not answer"])[-1].strip()


def _is_pushed(engine: str, image: ImageReference) -> bool:
    """Whether the registry has an image, by the engine's own credentials."""
    name = str(image) if engine == "docker" else f"docker://{image}"
    try:
        done = subprocess.run(
            [engine, "manifest", "inspect", name],
            capture_output=True,
            timeout=4 * _PROBE_TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False  # then the build tells why
    return done.returncode == 0


def _run(command: list[str], plan: BuildPlan, on_phase: OnPhase, timeout_s: float) -> None:
    log: deque[str] = deque(maxlen=_N_KEPT)
    deadline_s = time.monotonic() + timeout_s
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        errors="replace",
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        start_new_session=True,  # so that the engine's command can be ended with it
    )
    timer = threading.Timer(timeout_s, _end, (process,))
    timer.start()
    try:
        former = ""
        for text, phase in _records(process.stdout):
            log.extend(text.splitlines())
            step = step_in(text) or _PHASES.get(phase, "")
            if step and step != former:
                former = step
                on_phase(step)
        status = process.wait()
    finally:
        timer.cancel()
        _end(process)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
    if status:
        late = time.monotonic() >= deadline_s
        raise _failed(plan, list(log), timeout_s if late else None)


def _end(process: subprocess.Popen[str]) -> None:
    """End repo2docker and the engine's command that it waits for, which would go on without it."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _records(stream: IO[str] | None) -> Iterator[tuple[str, str]]:
    """(text, phase) of each line; lines of the engine itself are plain."""
    for line in stream or ():
        try:
            told = json.loads(line)
            yield str(told["message"]), str(told.get("phase", ""))
        except (ValueError, KeyError, TypeError):
            yield line, ""


def _failed(plan: BuildPlan, log: list[str], timeout_s: float | None) -> ImageError:
    tail = tail_of(log)
    if timeout_s is not None:
        message = f"building {plan.image} took longer than {timeout_s:.0f} s; the log ends: "
        return ImageError(f"{message}{tail[-1] if tail else 'empty'}", log="\n".join(tail))
    failure = explain_failure(log, plan.configuration)
    return ImageError(
        f"building the image of {plan.configuration.directory} failed: {failure}; fix it there, "
        f"or {_INSTEAD}",
        log="\n".join(tail),
        file=failure.file,
        line=failure.line,
    )
