"""What a wheel holds, as one digest that an installed package and the wheel itself both tell.

An index is not asked twice for the same file: of what pip has installed it keeps no digest of the
wheel, but those of its files, in ``RECORD``.  Compared are the files of the package; what pip
writes itself (metadata, scripts, compiled sources) is not the wheel's.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from packaging.tags import Tag, parse_tag
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from jupyter_ddl.protocol.facts import PackageContents
from jupyter_ddl.store.blobs import digest_of

__all__ = ["differs_from", "installed_contents", "is_bomb", "wheel_digest"]

_INSTALLERS = ("pip", "uv")
"""Whoever else puts a package there (conda) has built it, and not taken it from an index."""
_OF_AN_INDEX = ("any", "manylinux", "musllinux")
"""Platforms of wheels that are the same wherever they come from: others were built on the spot."""
_CHUNK_BYTES = 1 << 20
_MOST_TIMES = 100
"""The largest of the packages that people use unpack to ten times their size."""
_ALWAYS_BYTES = 1 << 30


def installed_contents(info: Path) -> PackageContents | None:
    """What an installed package came with; None where that can't be told of its wheel.

    Parameters
    ----------
    info : Path
        Its ``dist-info`` directory.
    """
    try:
        installer = (info / "INSTALLER").read_text().strip()
        wheel = (info / "WHEEL").read_text()
        with (info / "RECORD").open(newline="") as file:
            rows = [(row[0], row[1]) for row in csv.reader(file) if len(row) > 1]
    except (OSError, UnicodeDecodeError, csv.Error):
        return None
    tags = {
        tag
        for line in wheel.splitlines()
        if line.startswith("Tag: ")
        for tag in parse_tag(line.removeprefix("Tag: ").strip())
    }
    kept = [(path, told) for path, told in rows if _is_of_package(path)]
    if installer not in _INSTALLERS or not kept or not _can_compare(tags):
        return None
    if not all(told.startswith("sha256=") for _, told in kept):
        return None
    return PackageContents(_names_of(tags), _digest(kept))


def differs_from(wheel: Path, known: PackageContents) -> bool:
    """Whether a wheel has other files than the one that is known, or is damaged.  Blocking.

    One for another platform or Python is another wheel, of which nothing is known.
    """
    try:
        tags = parse_wheel_filename(wheel.name)[3]
        return _names_of(tags) == known.tags and wheel_digest(wheel) != known.digest
    except (InvalidWheelFilename, zipfile.BadZipFile, zlib.error, EOFError):
        return True


def is_bomb(wheel: Path) -> bool:
    """Whether a wheel would fill a disk that had room for it.  Blocking.

    What its directory says is all that is ever unpacked of an entry.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            n_bytes = sum(entry.file_size for entry in archive.infolist())
    except zipfile.BadZipFile:
        return False  # pip says so
    return n_bytes > max(_ALWAYS_BYTES, _MOST_TIMES * wheel.stat().st_size)


def wheel_digest(wheel: Path) -> str:
    """Of the files themselves: what a wheel's own ``RECORD`` claims, nobody checks."""
    found = []
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            path = _installed_path(entry.filename)
            if not entry.is_dir() and _is_of_package(path):
                found.append((path, _told(archive, entry)))
    return _digest(found)


def _told(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> str:
    found = hashlib.sha256()
    with archive.open(entry) as file:
        while part := file.read(_CHUNK_BYTES):
            found.update(part)
    return f"sha256={base64.urlsafe_b64encode(found.digest()).decode().rstrip('=')}"


def _installed_path(path: str) -> str:
    """Where an entry of a wheel comes to lie; ``..`` in front: not among the packages."""
    first, _, rest = path.partition("/")
    if not first.endswith(".data"):
        return path
    kind, _, below = rest.partition("/")
    return below if kind in ("purelib", "platlib") else f"../{path}"


def _is_of_package(path: str) -> bool:
    first = PurePosixPath(path).parts[:1]
    if not first or first[0] in ("..", "/"):
        return False
    return not first[0].endswith(".dist-info") and not path.endswith(".pyc")


def _can_compare(tags: Iterable[Tag]) -> bool:
    platforms = [tag.platform for tag in tags]
    return bool(platforms) and all(each.startswith(_OF_AN_INDEX) for each in platforms)


def _names_of(tags: Iterable[Tag]) -> tuple[str, ...]:
    return tuple(sorted(map(str, tags)))


def _digest(files: Iterable[tuple[str, str]]) -> str:
    return digest_of("\n".join(sorted(f"{path},{told}" for path, told in files)).encode())
