"""The folder that a run works in, as far as the notebook's side can know."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from jupyter_ddl.cell.data_files import DATA_LIMIT_BYTES, read_files
from jupyter_ddl.cell.draft import RunDraft
from jupyter_ddl.cell.work_folder import work_folder
from jupyter_ddl.client.copies import is_copy
from jupyter_ddl.client.environment import cluster_now
from jupyter_ddl.client.session import session
from jupyter_ddl.errors import OptionError
from jupyter_ddl.formats import format_bytes, format_counted
from jupyter_ddl.protocol.program import ModuleFile
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.store.blobs import digest_of, find_blob
from jupyter_ddl.store.paths import blob_dirs

__all__ = [
    "check_resumed",
    "data_again",
    "folder_now",
    "shares_files",
    "tell_of_folder",
    "with_data",
]


def shares_files(cluster: str) -> bool:
    """Whether the ranks of a running cluster see this host's files."""
    return session().info(cluster).shares_files


def with_data(
    files: Iterable[ModuleFile], cluster: str, limit_bytes: int = DATA_LIMIT_BYTES
) -> tuple[tuple[ModuleFile, ...], list[tuple[str, bytes]]]:
    """Data files as they are sent to a cluster, and their content; none where it sees them.

    Raises
    ------
    CaptureError, CellError
        They are too large, or one can't be read; nothing was sent.
    """
    if not files or shares_files(cluster):
        return (), []
    read = read_files(files, work_folder(), limit_bytes)
    return tuple(file for file, _ in read), [(file.digest, data) for file, data in read]


def data_again(spec: RunSpec) -> list[tuple[str, bytes]]:
    """The content of a run's data files, as they are needed to go on with it.

    Raises
    ------
    OptionError
        One has changed, or has gone: then the trials that are left would see other data.
    """
    blobs = []
    for file in spec.program.data:
        path = Path(spec.folder) / file.path
        data = path.read_bytes() if path.is_file() else b""
        if digest_of(data) == file.digest:
            blobs.append((file.digest, data))
        elif find_blob(file.digest, blob_dirs()) is None and not is_copy(spec.run_id):
            raise OptionError(
                f"--resume {spec.run_id}: {path}, which the run has read, has changed or is gone; "
                f"put it back, or run the cell without --resume",
                path=str(path),
            )
    return blobs


def folder_now(draft: RunDraft) -> Iterator[str]:
    """Lines for ``--dry-run``: where ranks would work, and which data files travel."""
    folder, cluster = work_folder(), cluster_now()
    if cluster is None or shares_files(cluster):
        yield f"Folder: {folder}, where the notebook works"
        return
    yield "Folder: the run's own on each worker, which does not see the notebook's"
    data = draft.spec.program.data
    if data:
        with_data(data, cluster, draft.data_limit_bytes)
        total = sum(file.size_bytes for file in data)
        n_files = format_counted(len(data), "file")
        yield f"Data: {n_files} beside the notebook, {format_bytes(total)}"
        for file in data:
            yield f"  {file.path}: {format_bytes(file.size_bytes)}"


def tell_of_folder(cluster: str, on_notice: Callable[[str], None]) -> None:
    """Say beforehand that ranks can't write where the notebook is."""
    folder = work_folder()
    if shares_files(cluster) and not os.access(folder, os.W_OK):
        on_notice(
            f"{folder}, where the ranks work as the notebook does, can't be written: what the cell "
            f"saves by a relative name fails"
        )


def check_resumed(spec: RunSpec) -> None:
    """Refuse to go on with a run whose folder is no more.

    Raises
    ------
    OptionError
        The cluster shares this host's files, and the folder is gone or can't be read.
    """
    folder = Path(spec.folder)
    if not spec.folder or not shares_files(spec.cluster):
        return
    if not (folder.is_dir() and os.access(folder, os.R_OK | os.X_OK)):
        raise OptionError(
            f"--resume {spec.run_id}: the run works in {folder}, which is gone or can't be read; "
            f"make the folder again, or run the cell without --resume",
            path=spec.folder,
        )
