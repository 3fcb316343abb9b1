"""Modules that travel with a cell: written once per run and host, then imported as usual."""

from __future__ import annotations

import importlib
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from jupyter_ddl.errors import SpecError
from jupyter_ddl.spec.program import ModuleFile
from jupyter_ddl.store.blobs import digest_of, read_blob

__all__ = ["host_name", "import_all", "install_modules"]

_DIGEST_CHARS = 16


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
        The directory on ``sys.path``; None when nothing was shipped.

    Raises
    ------
    BlobMissingError
        A file's content is not on this host.
    SpecError
        A path leaves the directory.
    """
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


def import_all(names: Iterable[str]) -> dict[str, BaseException]:
    """Import packages ahead of the first trial; return what failed, by name."""
    failed: dict[str, BaseException] = {}
    for name in names:
        try:
            importlib.import_module(name)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - import runs foreign code
            failed[name] = error
    return failed
