"""A worker's way to the source of zygotes that its controller keeps.

It is one end of a socket pair without a name.  The controller makes that before it forks the
process that its workers are forked from, so a worker has its end from the begin, and whoever is no
worker has no way to the source.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import select
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from jupyter_ddl.protocol.rank_messages import PID_BYTES, ForkZygote

__all__ = ["ForkedZygote", "fork_zygote", "has_source", "offer_source", "requests_fd"]

log = logging.getLogger(__name__)

TIMEOUT_S = 10.0
"""For a fork alone, while packages may be imported for another worker."""
IMPORT_TIMEOUT_S = 60.0
"""For one behind an import: torch on a host that has too much to do takes a minute."""

_requests: socket.socket | None = None
"""Where requests go from this process and all that are forked from it; None: there is no source."""
_lifelines: set[int] = set()
"""Ends of pipes that are open for as long as this process lives."""


def _drop_lifelines() -> None:
    """In a fork, as code that people hand to Dask may make one: it is not the worker."""
    for fd in _lifelines:
        with contextlib.suppress(OSError):
            os.close(fd)
    _lifelines.clear()


os.register_at_fork(after_in_child=_drop_lifelines)


def offer_source(requests: socket.socket | None) -> None:
    """From here on this process and its forks have a source."""
    global _requests
    _requests = requests


def has_source() -> bool:
    return _requests is not None


def requests_fd() -> tuple[int, ...]:
    """What a fork of the controller must not close."""
    return () if _requests is None else (_requests.fileno(),)


class ForkedZygote:
    """A zygote that is another process's child; used as a ``Popen`` is."""

    def __init__(self, pid: int, pidfd: int, lifeline: int) -> None:
        self.pid = pid
        self._pidfd = pidfd
        self._lifeline = lifeline

    def wait(self, timeout_s: float) -> None:
        """Wait for its end.

        Raises
        ------
        subprocess.TimeoutExpired
            It goes on.
        """
        if self._pidfd < 0:
            return
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        if not poll.poll(timeout_s * 1000):
            raise subprocess.TimeoutExpired("zygote", timeout_s)
        os.close(self._pidfd)
        _close(self._lifeline)
        self._pidfd = -1

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)


async def fork_zygote(
    zygote_id: str,
    imports: Sequence[str],
    environment: Mapping[str, str],
    on_taken: Callable[[int], None],
) -> tuple[socket.socket, ForkedZygote] | None:
    """Have the source fork a zygote; None when there is no source, or it can't.

    Parameters
    ----------
    on_taken : callable
        Told the source's pid once it has begun with the request.

    Returns
    -------
    socket.socket, ForkedZygote
        This end of its control socket, and the process.
    """
    if _requests is None:
        return None
    ours, theirs = socket.socketpair()
    with contextlib.ExitStack() as on_error:
        on_error.callback(ours.close)
        lifeline_end, lifeline = os.pipe2(os.O_CLOEXEC)
        _lifelines.add(lifeline)
        on_error.callback(_close, lifeline)
        request = ForkZygote(zygote_id, tuple(imports), dict(environment), str(Path.cwd()))
        try:
            data, fds = msgspec.msgpack.encode(request), [theirs.fileno(), lifeline_end]
            socket.send_fds(_requests, [data], fds, socket.MSG_DONTWAIT)
        except OSError as error:  # it does not read
            log.info("the source of zygotes can't be asked: %s", error)
            return None
        finally:
            theirs.close()
            os.close(lifeline_end)
        ours.setblocking(False)
        timeout_s = IMPORT_TIMEOUT_S if imports else TIMEOUT_S
        try:
            async with asyncio.timeout(timeout_s):
                pid, _ = await _pid_from(ours)
                on_taken(pid)
                pid, pidfd = await _pid_from(ours)
        except TimeoutError:
            _give_up(timeout_s)
            return None
        except OSError:
            return None  # refused, or it has ended
        on_error.pop_all()
    return ours, ForkedZygote(pid, pidfd, lifeline)


def _close(lifeline: int) -> None:
    _lifelines.discard(lifeline)
    os.close(lifeline)


async def _pid_from(ours: socket.socket) -> tuple[int, int]:
    """A pid, and a descriptor of that process if it comes with it.

    Raises
    ------
    OSError
        The other end is closed.
    """
    loop = asyncio.get_running_loop()
    there = asyncio.Event()
    loop.add_reader(ours, there.set)
    try:
        await there.wait()
    finally:
        loop.remove_reader(ours)
    data, fds, _, _ = socket.recv_fds(ours, PID_BYTES, 1, socket.MSG_CMSG_CLOEXEC)
    if not data:
        raise ConnectionResetError("closed")
    return int.from_bytes(data, "big"), fds[0] if fds else -1


def _give_up(timeout_s: float) -> None:
    global _requests
    log.warning("the source of zygotes did not answer within %.0f s", timeout_s)
    if _requests is not None and timeout_s >= IMPORT_TIMEOUT_S:  # what it hangs in will last
        _requests.close()
        _requests = None
