"""What the controller calls with ``Client.run`` on workers that have files of their own."""

from __future__ import annotations

from distributed import Worker

from jupyter_ddl.errors import LaunchError
from jupyter_ddl.worker.own_files import OwnFiles
from jupyter_ddl.worker.plugin import plugin_of

__all__ = [
    "copy_blob",
    "fetched",
    "list_checkpoints",
    "missing_blobs",
    "put_blob",
    "put_file",
    "read_part",
]


def missing_blobs(run_id: str, digests: tuple[str, ...], dask_worker: Worker) -> list[str]:
    return _files(dask_worker).missing_blobs(run_id, digests)


def put_blob(digest: str, offset: int, data: bytes, is_last: bool, dask_worker: Worker) -> None:
    _files(dask_worker).put_blob(digest, offset, data, is_last)


async def copy_blob(digest: str, source: str, dask_worker: Worker) -> bool:
    """Have a worker fetch a blob from the one at ``source``; False when it is not there."""
    return await _files(dask_worker).copy_blob(digest, dask_worker.rpc(source))


def list_checkpoints(run_id: str, trial: int, dask_worker: Worker) -> list[str]:
    return _files(dask_worker).checkpoints(run_id, trial)


def put_file(
    run_id: str, path: str, offset: int, data: bytes, is_last: bool, dask_worker: Worker
) -> None:
    _files(dask_worker).put_file(run_id, path, offset, data, is_last)


def read_part(
    run_id: str, path: str, offset: int, limit: int, dask_worker: Worker
) -> tuple[bytes, int] | None:
    return _files(dask_worker).read(run_id, path, offset, limit)


def fetched(assignment_id: str, dask_worker: Worker) -> None:
    """Everything that an assignment has made is at the controller: the worker may go."""
    _files(dask_worker).unfetched.discard(assignment_id)


def _files(worker: Worker) -> OwnFiles:
    files = plugin_of(worker).files
    if files is None:
        raise LaunchError(f"worker {worker.address} shares the controller's files")
    return files
