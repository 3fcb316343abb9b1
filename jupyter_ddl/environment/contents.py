"""Files of a repository that go into its image without asking for packages: code, what is copied.

Their contents belong to a configuration's meaning: an image of other contents is another one.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

__all__ = ["code_digest", "used_files"]

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
