"""Reads a directory as repo2docker would: which files count, and what they ask for together.

The order of buildpacks and of files is that of repo2docker 2026.4 (its ``app`` module and
the ``detect`` methods of its buildpacks).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from jupyter_ddl.environment.project_files import (
    PartialReading,
    read_apt,
    read_conda_file,
    read_lock,
    read_pipfile,
    read_project,
    read_runtime,
)
from jupyter_ddl.environment.requirements import Configuration, Declared, read_requirements
from jupyter_ddl.errors import EnvironmentFileError
from jupyter_ddl.store.blobs import digest_of

__all__ = [
    "binder_directory",
    "code_digest",
    "configuration_stamp",
    "has_configuration",
    "read_configuration",
    "used_files",
]


# Files of a repository that go into its image without asking for packages: code, what is copied.
#
# Their contents belong to a configuration's meaning: an image of other contents is another one.

_SKIPPED = frozenset({".git", ".venv", "node_modules", "__pycache__", ".ipynb_checkpoints"})
_CODE = frozenset({
    ".py", ".pyi", ".pyx", ".pxd", ".c", ".cc", ".cpp", ".cu", ".h", ".hpp", ".rs", ".R",
    ".toml", ".cfg", ".whl",
})  # fmt: skip
"""Notebooks and data are not among them: an image for each time that one is saved helps nobody."""
_EXECUTED = ("postBuild", "start", "install.R", "default.nix")
_WORD = re.compile(r"[\w./+*?-]+")
_COMMENT = re.compile(r"(^|\s)#.*$", re.MULTILINE)
_GLOB = re.compile(r"[*?\[]")
_BIND = re.compile(r"--mount=(\S*type=bind\S*)")
_SOURCE = re.compile(r"(?:^|,)(?:source|src)=([^,]+)")


def code_digest(root: Path) -> str:
    """Of what an installation of the repository itself is made of."""
    return _digest(root, (path for path in _files_below(root) if path.suffix in _CODE))


def used_files(texts: Mapping[str, str], root: Path) -> dict[str, str]:
    """Digests of what programs among the files take from the repository, each under a title.

    Parameters
    ----------
    texts : mapping
        Contents of the files that are read, by name.
    """
    found = {name: _named(texts[name], root) for name in _EXECUTED if name in texts}
    if "Dockerfile" in texts:
        found["Dockerfile"] = _copied(texts["Dockerfile"], root)
    return {f"what {name} uses of the repository": told for name, told in found.items() if told}


def _named(script: str, root: Path) -> str:
    """Of the files that a script names, relative to the repository; empty for none.

    Scripts are executed in the repository's copy within the image.
    """
    found: set[Path] = set()
    for word in _WORD.findall(_COMMENT.sub("", script)):
        found.update(path for path in _matching(root, word) if path.is_file())
    return _digest(root, found)


def _copied(dockerfile: str, root: Path) -> str:
    """Of what a Dockerfile copies out of the repository, or mounts; empty for nothing."""
    found: set[Path] = set()
    for source in _sources(dockerfile):
        for path in _matching(root, source):
            found.update(_files_below(path) if path.is_dir() else [path])
    return _digest(root, found)


def _sources(dockerfile: str) -> Iterator[str]:
    """Places in the repository that instructions read; a variable may be any of them."""
    joined = re.sub(r"\\[ \t]*\n", " ", re.sub(r"^\s*#.*\n", "", dockerfile, flags=re.MULTILINE))
    for line in joined.splitlines():
        instruction, _, rest = line.strip().partition(" ")
        if instruction.upper() in ("COPY", "ADD"):
            yield from (_known(each) for each in _arguments(rest) if _is_local(each))
        elif instruction.upper() == "RUN":
            for options in _BIND.findall(rest):
                source = _SOURCE.search(options)
                if "from=" not in options:
                    yield _known(source[1] if source else ".")


def _arguments(text: str) -> list[str]:
    words = text.split()
    flags = [word for word in words if word.startswith("--")]
    if any(flag.startswith("--from=") for flag in flags):
        return []
    bare = " ".join(word for word in words if not word.startswith("--"))
    try:
        listed = json.loads(bare) if bare.startswith("[") else shlex.split(bare)
    except ValueError:
        listed = bare.split()
    return [str(each) for each in listed[:-1]]


def _is_local(source: str) -> bool:
    return "://" not in source and not source.startswith(("<<", "git@"))


def _known(source: str) -> str:
    return "." if "$" in source else source


def _matching(root: Path, text: str) -> Iterable[Path]:
    """Files and directories below the root that a text means; none where it can mean none."""
    relative = os.path.normpath(text.lstrip("/") or ".")
    if relative.startswith(".."):
        return []
    try:
        if _GLOB.search(relative):
            return list(root.glob(relative))
        path = root / relative
        return [path] if path.exists() else []
    except (OSError, ValueError, NotImplementedError):
        return []


def _files_below(directory: Path) -> Iterator[Path]:
    for place, names, files in os.walk(directory):
        names[:] = [name for name in names if name not in _SKIPPED]
        yield from (Path(place, name) for name in files)


def _digest(root: Path, paths: Iterable[Path]) -> str:
    lines = []
    for path in sorted(paths):
        if path.is_file():
            with path.open("rb") as file:
                content = hashlib.file_digest(file, "sha256").hexdigest()
            lines.append(f"{path.relative_to(root).as_posix()} {content}")
    return hashlib.sha256("\n".join(lines).encode()).hexdigest() if lines else ""


_SCRIPTS = ("postBuild", "start")
_ROOT_ONLY = ("setup.py", "setup.cfg", "pyproject.toml", "DESCRIPTION")
"""Looked at only where there is neither ``binder/`` nor ``.binder/``."""
_FILES = {
    "docker": ("Dockerfile",),
    "julia": ("Project.toml", "JuliaProject.toml", "Manifest.toml", "environment.yml",
              "environment.yaml", "apt.txt"),
    "nix": ("default.nix",),
    "r": ("runtime.txt", "install.R", "DESCRIPTION", "environment.yml", "environment.yaml",
          "requirements.txt", "apt.txt"),
    "conda": ("environment.yml", "environment.yaml", "apt.txt"),
    "pipfile": ("Pipfile", "Pipfile.lock", "runtime.txt", "environment.yml", "environment.yaml",
                "setup.py", "apt.txt"),
    "python": ("requirements.txt", "runtime.txt", "pyproject.toml", "setup.py", "setup.cfg",
               "environment.yml", "environment.yaml", "apt.txt"),
}  # fmt: skip
_PLACES = ("", "binder/", ".binder/")
_REFUSED = "REQUIRE"
"""Of Julia before 1.0: repo2docker knows it, and builds nothing of it any more."""
_ALL = tuple(dict.fromkeys(name for names in _FILES.values() for name in names))
_INSTALLS_ITSELF = re.compile(r"pip[0-9.]* install\s(?:[^\n]*\s)?\.(?:\s|/|\[|$)")
_MAX_BYTES = 10 << 20
_READERS: dict[str, Callable[[str, str], PartialReading]] = {
    "pyproject.toml": read_project,
    "Pipfile": read_pipfile,
    "Pipfile.lock": read_lock,
    "runtime.txt": read_runtime,
    "apt.txt": read_apt,
}


def binder_directory(root: Path) -> str:
    """Where the files lie in a repository: ``binder``, ``.binder``, or empty for its root.

    Raises
    ------
    EnvironmentFileError
        It has both, which repo2docker refuses.
    """
    found = [name for name in (".binder", "binder") if (root / name).is_dir()]
    if len(found) == 2:
        raise EnvironmentFileError(
            f"{root} has both binder/ and .binder/, and repo2docker takes only one: remove one",
            path=str(root),
            line=0,
        )
    return found[0] if found else ""


def has_configuration(root: Path) -> bool:
    """Whether there is anything in a directory that repo2docker would build from."""
    place = binder_directory(root)
    return bool(_buildpack(root, place))


_STAMPED = tuple(f"{place}{name}" for place in _PLACES for name in (*_ALL, *_SCRIPTS))


def configuration_stamp(root: Path, included: Iterable[str] = ()) -> tuple[object, ...]:
    """Changes whenever a file that may count does; costs 0.1 ms.

    Parameters
    ----------
    included : iterable of str
        Files that the usual ones name, relative to the root.
    """
    here = str(root)
    found: list[object] = [here]
    for name in (*_STAMPED, *included):
        try:
            # Sixty of them before each cell: as paths they would take three times as long.
            there = os.stat(os.path.join(here, name))  # noqa: PTH116
        except (OSError, ValueError):
            continue
        found.append((name, there.st_mtime_ns, there.st_size))
    return tuple(found)


def read_configuration(root: Path, *, with_code: bool = True) -> Configuration:
    """Read a directory.

    Parameters
    ----------
    root : Path
        The repository: the directory that has ``binder/``, or the files themselves.
    with_code : bool
        Whether other files of the repository count that go into its image: its code where it is
        installed itself, what a Dockerfile copies, what scripts name.  The digest of a
        configuration without them is another one.

    Raises
    ------
    EnvironmentFileError
        Nothing to build from, or a file that cannot be read as what it is (with its line).
    """
    root = root.resolve()
    if root.name in ("binder", ".binder") and not binder_directory(root):
        root = root.parent
    if not root.is_dir():
        raise EnvironmentFileError(f"{root} is not a directory", path=str(root), line=0)
    place = binder_directory(root)
    buildpack = _buildpack(root, place)
    if not buildpack:
        where = f"{root / place}"
        raise EnvironmentFileError(
            f"{where} has no file that repo2docker builds from; expected environment.yml, "
            f"requirements.txt, pyproject.toml, Pipfile, runtime.txt or a Dockerfile",
            path=where,
            line=0,
        )
    return _read(root, place, buildpack, with_code)


def _language(root: Path, place: str) -> str:
    """What ``runtime.txt`` says: ``python``, ``r 2025-06-01`` …, or nothing."""
    shown = _shown(place, "runtime.txt")
    file = root / shown
    return read_runtime(_text(file, shown), shown).runtime if file.is_file() else ""


def _buildpack(root: Path, place: str) -> str:
    """The first one that repo2docker would take; empty for none."""
    there = {name for name in _ALL if _exists(root, place, name)}
    if "Dockerfile" in there:
        return "docker"
    if there & {"Project.toml", "JuliaProject.toml"}:
        return "julia"
    if _exists(root, place, _REFUSED):
        shown = _shown(place, _REFUSED)
        raise EnvironmentFileError(
            f"{shown} is for Julia before 1.0, which repo2docker does not support; expected a "
            "Project.toml",
            path=shown,
            line=0,
        )
    if "default.nix" in there:
        return "nix"
    # Only now: repo2docker looks at no runtime.txt for those above, so nothing is wrong with it.
    language = _language(root, place)
    is_python = language in ("", "python")
    if language.startswith("r ") or "DESCRIPTION" in there:
        return "r"
    if there & {"environment.yml", "environment.yaml"}:
        return "conda"
    if there & {"Pipfile", "Pipfile.lock"} and is_python:
        return "pipfile"
    if language == "python":
        return "python"
    if not language and ("requirements.txt" in there or _is_package(root, place)):
        return "python"
    return ""


def _is_package(root: Path, place: str) -> bool:
    """Whether repo2docker installs the repository itself with pip."""
    if place:
        return False
    if (root / "setup.py").is_file():
        return True
    file = root / "pyproject.toml"
    if not file.is_file():
        return False
    told = read_project(_text(file, file.name), file.name).normal
    return '"project"' in told and '"build-system"' in told


def _read(root: Path, place: str, buildpack: str, with_code: bool) -> Configuration:
    wanted = [name for name in (*_FILES[buildpack], *_SCRIPTS) if _exists(root, place, name)]
    if buildpack == "docker":
        wanted = ["Dockerfile"]
    if {"environment.yml", "environment.yaml"} <= set(wanted):
        wanted.remove("environment.yaml")
    if "Pipfile.lock" in wanted and "Pipfile" in wanted:
        wanted.remove("Pipfile")  # the lock is what is installed
    files: dict[str, str] = {}
    packages: list[Declared] = []
    python, itself = "", "DESCRIPTION" in wanted
    texts = {name: _text(root / _shown(place, name), _shown(place, name)) for name in wanted}
    for name, text in texts.items():
        shown = _shown(place, name)
        normal, declared, asked, local = _one_file(name, shown, text, root)
        files[shown] = normal
        packages += declared
        python = python or asked
        itself |= local
    itself |= buildpack in ("python", "pipfile") and _is_package(root, place)
    if itself and with_code:
        files["the repository's own code"] = code_digest(root)
    if with_code:
        files |= used_files(texts, root)
    left = tuple(_shown(place, name) for name in _ALL if _is_ignored(root, place, name, wanted))
    meaning = [buildpack, {_basename(shown): normal for shown, normal in files.items()}]
    return Configuration(
        directory=str(root),
        buildpack=buildpack,
        files=files,
        ignored=left,
        python=python,
        packages=tuple(sorted(packages, key=lambda each: (each.name, each.installer))),
        digest=digest_of(msgspec.json.encode(meaning, order="sorted")),
    )


def _one_file(
    name: str, shown: str, text: str, root: Path
) -> tuple[str, tuple[Declared, ...], str, bool]:
    """(normal form, packages, Python version, whether it installs the repository itself)."""
    if name in ("environment.yml", "environment.yaml"):
        conda = read_conda_file(text, shown, root)
        return conda.normal, conda.packages, conda.python, conda.has_local
    if name == "requirements.txt":
        found = read_requirements(text, shown, root)
        return "\n".join(found.lines), found.packages, "", found.has_local
    reader = _READERS.get(name)
    if reader is not None:
        part = reader(text, shown)
        return part.normal, part.packages, part.python, part.has_local
    normal = "\n".join(line.rstrip() for line in text.splitlines()).strip()
    return normal, (), "", name == "postBuild" and bool(_INSTALLS_ITSELF.search(text))


def _is_ignored(root: Path, place: str, name: str, wanted: list[str]) -> bool:
    return name not in wanted and name not in _ROOT_ONLY and _exists(root, place, name)


def _exists(root: Path, place: str, name: str) -> bool:
    if place and name in _ROOT_ONLY:
        return False
    return (root / place / name).is_file()


def _shown(place: str, name: str) -> str:
    return f"{place}/{name}" if place else name


def _basename(shown: str) -> str:
    """``binder/x`` and ``.binder/x`` mean the same."""
    return shown.rpartition("/")[2]


def _text(file: Path, shown: str) -> str:
    try:
        with file.open("rb") as stream:
            data = stream.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            raise EnvironmentFileError(
                f"{shown} is larger than {_MAX_BYTES >> 20} MiB, too large for a list of packages",
                path=shown,
                line=0,
            )
        return data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise EnvironmentFileError(
            f"{shown}, line {line}: it is not UTF-8 text", path=shown, line=line
        ) from None
    except OSError as error:
        raise EnvironmentFileError(
            f"{shown} cannot be read: {error.strerror}", path=shown, line=0
        ) from None
