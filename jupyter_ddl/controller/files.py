"""What ranks have written on workers with files of their own: listed, and brought back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import msgspec

from jupyter_ddl.driving.calls import WorkerLostError
from jupyter_ddl.driving.file_sync import FileTransfer
from jupyter_ddl.driving.workers import WorkerInfo
from jupyter_ddl.errors import CapacityError, RunNotFoundError
from jupyter_ddl.protocol.folder import FolderFile
from jupyter_ddl.protocol.replies import FilesResult
from jupyter_ddl.protocol.requests import FetchFile
from jupyter_ddl.store.paths import run_dir

__all__ = ["WrittenFiles"]


class WrittenFiles:
    """Used on the controller's loop only.

    Parameters
    ----------
    transfer : FileTransfer or None
        None: workers see the notebook's folder, and what they write is there.
    workers : callable
        The workers that there are, by address.
    """

    def __init__(
        self, transfer: FileTransfer | None, workers: Callable[[], Mapping[str, WorkerInfo]]
    ) -> None:
        self._transfer = transfer
        self._workers = workers

    async def found(self, run_id: str) -> FilesResult:
        """Files of a run, on all workers that answer."""
        if self._transfer is None:
            return FilesResult()
        workers = tuple(self._workers().values())
        lists = await asyncio.gather(*(self._on(each, run_id) for each in workers))
        # Workers of one host may share the folder: a file is listed once.
        found: dict[tuple[object, ...], FolderFile] = {}
        for info, files in zip(workers, lists, strict=True):
            for file in files:
                key = info.host, file.path, file.size_bytes, file.changed_at_s
                found.setdefault(key, msgspec.structs.replace(file, worker=info.name))
        return FilesResult(tuple(sorted(found.values(), key=lambda each: each.path)))

    async def _on(self, worker: WorkerInfo, run_id: str) -> list[FolderFile]:
        if self._transfer is None:
            return []
        try:
            return await self._transfer.list_written(worker.address, run_id)
        except WorkerLostError:
            return []

    async def fetch(self, wanted: FetchFile) -> None:
        """Bring one file into its run's directory.

        Raises
        ------
        RunNotFoundError
            The file, or its worker, is no more.
        CapacityError
            It finds no room here.
        """
        file, workers = wanted.file, self._workers().values()
        address = next((each.address for each in workers if each.name == file.worker), None)
        directory = run_dir(wanted.run_id)
        try:
            if (
                self._transfer is not None
                and address is not None
                and directory.is_dir()
                and await self._transfer.fetch_written(address, wanted.run_id, directory, file)
            ):
                return
        except WorkerLostError:
            pass  # it went a moment ago
        except OSError as error:
            raise CapacityError(
                f"{file.path} of run {wanted.run_id} can't be written here: {error.strerror}; "
                f"make room in {directory}",
                path=file.path,
            ) from None
        raise RunNotFoundError(
            f"worker {file.worker} no longer has {file.path} of run {wanted.run_id}; "
            f"--bring-files brings files while the run goes on",
            path=file.path,
        )
