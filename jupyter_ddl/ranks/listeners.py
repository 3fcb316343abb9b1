"""Sockets of a process group at which nobody is to be met any more.

Gloo keeps listening when all its ranks are connected, and asks nobody who he is.  Its descriptors
can't be closed from outside, so the kernel is told to drop what still comes for them.

A store that asks for a token by itself stays open: its ranks may come again.

NCCL's sockets are left alone where torch connects ranks: it connects to them for as long as a
communicator lives, to end it as well, and answers only who knows that communicator's number, which
ranks tell each other in the store.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import stat
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

__all__ = ["closed_to_strangers", "leave_open", "socket_inodes"]

_SO_ATTACH_FILTER = 26
_DROP_ALL = struct.pack("HBBI", 0x06, 0, 0, 0)
"""One instruction of the classic packet filter: return 0, keep no byte."""

_left_open: set[int] = set()


def leave_open(listener: socket.socket) -> None:
    """Of a socket that asks whoever comes for a token, for the life of this process."""
    _left_open.add(os.fstat(listener.fileno()).st_ino)


def socket_inodes() -> dict[int, int]:
    """Inode to file descriptor, of the sockets of this process."""
    found = {}
    for path in Path("/dev/fd").iterdir():
        fd = int(path.name)
        with contextlib.suppress(OSError):  # the descriptor of the listing itself is gone
            status = os.fstat(fd)
            if stat.S_ISSOCK(status.st_mode):
                found[status.st_ino] = fd
    return found


@contextlib.contextmanager
def closed_to_strangers(*, but_nccl: bool = True) -> Iterator[None]:
    """Within this, ranks meet; whoever comes later to the sockets that they met at gets no answer.

    As a decorator it makes that of each call of a function.
    Where torch connects ranks only when they first need each other, nothing is done.

    Parameters
    ----------
    but_nccl
        Leave open what looks like a socket of NCCL, as those of gRPC do.
    """
    if sys.platform != "linux" or os.environ.get("TORCH_GLOO_LAZY_INIT") == "1":
        yield
        return
    before = socket_inodes().keys()
    yield
    for inode, fd in socket_inodes().items():
        if inode not in before and inode not in _left_open:
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(fd)) as found:
                _close(found, but_nccl)


def _close(found: socket.socket, but_nccl: bool) -> None:
    is_tcp = found.family in (socket.AF_INET, socket.AF_INET6)
    is_listening = is_tcp and found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    if not is_listening or (but_nccl and _is_of_nccl(found)):
        return
    program = ctypes.create_string_buffer(_DROP_ALL)
    pointed = struct.pack("HL", 1, ctypes.addressof(program))
    found.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, pointed)


def _is_of_nccl(listener: socket.socket) -> bool:
    """NCCL sets no option that reuses addresses, or both for a port that it was told
    (``ncclSocketListen``); gloo and TensorPipe set that for addresses alone, gRPC both."""
    options = (socket.SO_REUSEADDR, socket.SO_REUSEPORT)
    first, second = (bool(listener.getsockopt(socket.SOL_SOCKET, each)) for each in options)
    return first == second
