"""One controller per cluster name: a lock that lives as long as its process.

``flock`` on a file in the runtime directory: the kernel frees it at the holder's death.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator

from jupyter_ddl.errors import ClusterError
from jupyter_ddl.store.paths import runtime_dir

__all__ = ["free_name", "hold_name"]

_POLL_S = 0.05


def hold_name(name: str, is_ready: Callable[[], bool], timeout_s: float) -> int:
    """Hold a cluster's name for the life of this process.

    A holder that is starting or ending is waited for; one that is ready is not.

    Parameters
    ----------
    is_ready : callable
        Whether the controller that holds the name can be used.

    Raises
    ------
    ClusterError
        Another controller has the name.
    """
    fd = os.open(_path(name), os.O_RDWR | os.O_CREAT, 0o600)
    deadline = time.monotonic() + timeout_s
    while not _try_lock(fd):
        if is_ready() or time.monotonic() > deadline:
            os.close(fd)
            raise ClusterError(
                f"a controller named {name!r} runs already; `%cluster attach {name}`, "
                f"or give another --name"
            )
        time.sleep(_POLL_S)
    return fd


@contextlib.contextmanager
def free_name(name: str) -> Iterator[bool]:
    """Within this, nobody has the name if it yields True; False: a controller holds it."""
    fd = os.open(_path(name), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        yield _try_lock(fd)
    finally:
        os.close(fd)


def _path(name: str) -> str:
    return str(runtime_dir() / f"{name}.lock")


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
