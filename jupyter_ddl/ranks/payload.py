"""Captured values of a run, unpickled afresh for every trial.

Large buffers are mapped copy-on-write: all trials and ranks of a host share the pages, and
what a trial writes into an array is gone with it.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import io
import pickle
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from jupyter_ddl.errors import SpecError
from jupyter_ddl.protocol.program import MAIN_GLOBALS, ModuleFile, Program
from jupyter_ddl.ranks.incell import put_numbers
from jupyter_ddl.store.blobs import digest_of, map_blob, read_blob

__all__ = [
    "DECIDES_AT_IMPORT",
    "CapturedValues",
    "host_name",
    "import_all",
    "import_hint",
    "install_modules",
]


# Modules that travel with a cell: written once per run and host, then imported as usual.  Those of
# other folders than the notebook's are used in their place where they lie on this host unchanged:
# what they import by computed names, and the data beside them, is there as well.

_DIGEST_CHARS = 16
_N_NAMED = 5
_travelled: set[str] = set()
"""Top-level names of the modules that were sent to this process."""


def host_name() -> str:
    """Name of this host as messages show it."""
    return socket.gethostname()


def install_modules(
    modules: tuple[ModuleFile, ...], blob_dirs: Iterable[Path], run_dir: Path
) -> Path | None:
    """Make the shipped modules importable, ahead of installed ones of the same name.

    They lie in ``<run_dir>/modules/<digest>``: files, so that spawned children, ``inspect``
    and tracebacks find them.  Ranks that do this at the same time do not disturb each other.

    Returns
    -------
    Path or None
        The directory on ``sys.path``; None when nothing had to be written.

    Raises
    ------
    BlobMissingError
        A file's content is not on this host.
    SpecError
        A path leaves the directory.
    """
    _travelled.update(module.path.partition("/")[0].partition(".")[0] for module in modules)
    in_place = _usable_folders(modules)
    sys.path += [folder for folder in in_place if folder not in sys.path]
    modules = tuple(module for module in modules if module.folder not in in_place)
    if not modules:
        return None
    key = "".join(f"{module.path}\0{module.digest}\n" for module in modules)
    directory = run_dir / "modules" / digest_of(key.encode())[:_DIGEST_CHARS]
    if not directory.exists():
        _write_directory(modules, tuple(blob_dirs), directory)
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))
        importlib.invalidate_caches()
    return directory


def import_hint(error: BaseException) -> str:
    """Where a module was looked for in vain, and the way out."""
    name = getattr(error, "name", None)
    here = f" on host {host_name()}"
    if not isinstance(error, ModuleNotFoundError) or not name:
        return f"{here} (`%cluster env check` shows packages that differ from the notebook's)"
    top = name.partition(".")[0]
    if top in _travelled:
        return (
            f"{here}: of {top}, those files travel that the cell, or one of them, imports by name; "
            f"add `import {name}` to the cell"
        )
    own = ", ".join(sorted(_travelled)[:_N_NAMED]) or "none"
    return (
        f"{here}: {top} is not one of the modules that travel with the cell ({own}), and no "
        f"package in {sys.prefix}; a file of yours travels if the cell says `import {top}`, and "
        f"`%cluster env sync {top}` installs a package there"
    )


def _usable_folders(modules: tuple[ModuleFile, ...]) -> list[str]:
    """Folders on this host that have all of their modules as they were sent."""
    by_folder: dict[str, list[ModuleFile]] = {}
    for module in modules:
        if module.folder:
            by_folder.setdefault(module.folder, []).append(module)
    return [
        folder
        for folder, files in by_folder.items()
        if all(map(_is_unchanged, files)) and _comes_first(folder, files)
    ]


def _is_unchanged(module: ModuleFile) -> bool:
    try:
        data = (Path(module.folder) / _inside(module.path)).read_bytes()
    except OSError:
        return False
    return digest_of(data) == module.digest


def _comes_first(folder: str, files: Iterable[ModuleFile]) -> bool:
    """Whether no installed module would be imported in the place of one of these."""
    for top in {file.path.partition("/")[0].partition(".")[0] for file in files}:
        found = importlib.machinery.PathFinder.find_spec(top, [*sys.path, folder])
        places = [] if found is None else [found.origin, *(found.submodule_search_locations or ())]
        if not any(place and str(Path(place).parent.resolve()) == folder for place in places):
            return False
    return True


def _write_directory(
    modules: tuple[ModuleFile, ...], blob_dirs: tuple[Path, ...], directory: Path
) -> None:
    directory.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=directory.parent))
    try:
        for module in modules:
            target = partial / _inside(module.path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(read_blob(module.digest, blob_dirs))
        partial.rename(directory)
    except OSError:
        # Renaming onto a filled directory fails: another rank was first, with the same content.
        if not directory.exists():
            raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _inside(path: str) -> PurePosixPath:
    relative = PurePosixPath(path)
    if relative.is_absolute() or ".." in relative.parts or not relative.parts:
        raise SpecError(f"module path {path!r} is not below the notebook's folder; rename it")
    return relative


DECIDES_AT_IMPORT = frozenset({"keras"})
"""Reads its settings (``KERAS_BACKEND``) when it is imported: the cell may set them before."""


def import_all(names: Iterable[str]) -> dict[str, BaseException]:
    """Import packages ahead of the first trial; return what failed, by name."""
    failed: dict[str, BaseException] = {}
    for name in sorted({*names} - DECIDES_AT_IMPORT):
        try:
            importlib.import_module(name)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - import runs foreign code
            failed[name] = error
    return failed


class _Unpickler(pickle.Unpickler):
    """Reads several pickles that share one memo, and binds functions to the trial's names."""

    def __init__(
        self, data: bytes, buffers: Iterator[memoryview], namespace: dict[str, Any]
    ) -> None:
        super().__init__(io.BytesIO(data), buffers=buffers)
        self._namespace = namespace

    def persistent_load(self, pid: Any) -> Any:
        if pid == MAIN_GLOBALS:
            return self._namespace
        raise SpecError(f"the captured values refer to {pid!r}, which this version does not know")


class CapturedValues:
    """The captures of one program, ready to be loaded into a trial's namespace.

    Raises
    ------
    BlobMissingError
        The payload is not on this host.
    """

    def __init__(self, program: Program, blob_dirs: tuple[Path, ...]) -> None:
        self._names = tuple(capture.name for capture in program.captures)
        self._buffers = program.buffers
        self._dirs = blob_dirs
        self._data = b""
        if program.payload is not None and self._names:
            # Bytes, because BytesIO then shares them instead of copying for every trial.
            self._data = read_blob(program.payload, blob_dirs)

    def load_into(self, namespace: dict[str, Any]) -> None:
        """Unpickle every capture under its name.

        Raises
        ------
        BlobMissingError
            A buffer is no longer on this host.
        Exception
            Whatever unpickling the user's objects raises.
        """
        if not self._data:
            return
        buffers = (map_blob(digest, self._dirs) for digest in self._buffers)
        unpickler = _Unpickler(self._data, buffers, namespace)
        # Values come last: setting functions up writes the notebook's globals that they use.
        values = [unpickler.load() for _ in self._names]
        put_numbers(namespace)
        namespace.update(zip(self._names, values, strict=True))
