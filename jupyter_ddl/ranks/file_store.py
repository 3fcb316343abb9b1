"""The store of ranks on one host: torch's, of a file that they share, but prompt.

``torch.distributed.FileStore`` (2.13) looks every 10 ms for what it waits for, and ranks that
connect wait for each other's addresses a few times: half of what their meeting takes.  Whether a
key is there it says within 20 µs.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta

import torch.distributed as dist

__all__ = ["FileStore"]

_LEAST_S, _MOST_S = 0.000_2, 0.01
_SHARE = 0.05
"""Of the time waited so far, until the next look."""

_kept: list[FileStore] = []
"""For the life of the process: what torch makes of a store keeps alive its half in C++ alone."""


class FileStore(dist.Store):  # type: ignore[misc]  # torch is not typed here
    """One rank's view of the file.

    Parameters
    ----------
    path : str
        Of a file that is there already, maybe empty.
    timeout : datetime.timedelta
        Of every wait that has none of its own.
    """

    def __init__(self, path: str, timeout: timedelta) -> None:
        super().__init__()
        self.set_timeout(timeout)
        self._path = path
        self._file = dist.FileStore(path, -1)
        self._file.set_timeout(timeout)
        _kept.append(self)

    # -- torch's interface: https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.Store

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        began_s = time.monotonic()
        limit_s = (timeout or self.timeout).total_seconds()
        while not self._file.check(keys):
            waited_s = time.monotonic() - began_s
            if waited_s > limit_s:
                raise dist.DistStoreError(f"waited {limit_s:.0f} s for {', '.join(keys[:3])}")
            time.sleep(min(max(_LEAST_S, _SHARE * waited_s), _MOST_S))

    def get(self, key: str) -> bytes:
        self.wait([key])
        return bytes(self._file.get(key))

    def multi_get(self, keys: list[str]) -> list[bytes]:
        self.wait(keys)
        return [bytes(self._file.get(key)) for key in keys]

    def set(self, key: str, value: str | bytes) -> None:
        self._file.set(key, value)

    def multi_set(self, keys: list[str], values: Sequence[str | bytes]) -> None:
        for key, value in zip(keys, values, strict=True):
            self._file.set(key, value)

    def add(self, key: str, amount: int) -> int:
        return int(self._file.add(key, amount))

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        return bytes(self._file.compare_set(key, expected, desired))

    def check(self, keys: list[str]) -> bool:
        return bool(self._file.check(keys))

    def delete_key(self, key: str) -> bool:
        return bool(self._file.delete_key(key))

    def num_keys(self) -> int:
        return int(self._file.num_keys())

    # Under these names torch (2.13) asks from C++.
    deleteKey = delete_key  # noqa: N815
    getNumKeys = num_keys  # noqa: N815

    def has_extended_api(self) -> bool:
        return False

    def clone(self) -> FileStore:
        """One of its own, for another thread."""
        return FileStore(self._path, self.timeout)
