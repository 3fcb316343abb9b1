"""The connections of a rank's process group, which can be cut when a collective hangs.

A collective waits in C++ where no signal handler runs; with its connection gone it raises.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

__all__ = ["Connections", "waits_in_torch"]


class Connections:
    """TCP connections that came into being while the process group was made."""

    def __init__(self) -> None:
        self._inodes: set[int] = set()

    @contextlib.contextmanager
    def recorded(self) -> Iterator[None]:
        """Within this, the process group is made."""
        before = set(_socket_inodes())
        yield
        self._inodes = set(_socket_inodes()) - before

    def cut(self, store_port: int) -> int:
        """Shut the connections down, but for those of the store; return how many.  Any thread."""
        n_cut = 0
        for inode, fd in _socket_inodes().items():
            if inode in self._inodes and _cut(fd, store_port):
                n_cut += 1
        return n_cut


def waits_in_torch(thread_id: int) -> bool:
    """Whether the innermost Python frame of a thread is torch's: it may wait for other ranks."""
    frame = sys._current_frames().get(thread_id)
    name = "" if frame is None else str(frame.f_globals.get("__name__", ""))
    return name.partition(".")[0] == "torch"


def _socket_inodes() -> dict[int, int]:
    """Inode to file descriptor, of the sockets of this process."""
    found = {}
    for path in Path("/dev/fd").iterdir():
        fd = int(path.name)
        with contextlib.suppress(OSError):  # the descriptor of the listing itself is gone
            status = os.fstat(fd)
            if stat.S_ISSOCK(status.st_mode):
                found[status.st_ino] = fd
    return found


def _cut(fd: int, store_port: int) -> bool:
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(fd)) as connection:
        if connection.family not in (socket.AF_INET, socket.AF_INET6):
            return False
        ports = connection.getsockname()[1], connection.getpeername()[1]
        if store_port in ports:
            return False
        connection.shutdown(socket.SHUT_RDWR)
        return True
    return False
