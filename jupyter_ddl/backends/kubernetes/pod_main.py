"""The first process of a pod's container: what it is to run, which SIGTERM ends from the start.

``pod_main controller FOLDER PORT`` is the controller; other words are those of Dask's command.

Linux keeps from the first process of a container what it has no handler for, and Dask has one only
after a second or two of imports.  A pod that was deleted meanwhile would last for its whole grace.

A worker, and the controller, are children of this process, which begins them again: a worker whose
scheduler has gone, a controller that was killed.  Kubernetes would begin a container again that
ends, but later each time; and a pod with a container that does not run is not ready, so that
nobody finds the scheduler in it, the operator included, which is to end the cluster then.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import signal
import socket
import sys
import threading
from collections.abc import Callable
from typing import NoReturn
from urllib.parse import urlsplit

__all__ = ["NAME_IS_KNOWN", "main"]

NAME_IS_KNOWN = "the scheduler's name is known here"
"""A worker's container says so once it is: whoever reads its log need not suspect the DNS."""

_EXIT = 128 + signal.SIGTERM
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_AWAITED = (*_SIGNALS, signal.SIGCHLD)
_PAUSE_S = 0.2
_READY = b'"ready"'
"""In what a controller tells on its standard output when it serves."""


def main() -> None:
    """Act as ``dask``, or the controller, does on the command line."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(_EXIT))
    word = sys.argv[1] if len(sys.argv) > 1 else ""
    if word == "controller":
        begin_again(_controller, goes_on=lambda _, has_served: has_served, is_heard=True)
    elif word == "worker":
        begin_again(_worker, goes_on=lambda code, _: code == 0)
    else:
        _dask()


def _controller() -> None:
    del sys.argv[1]
    # By its name: what is in this package comes below what a controller is made of.
    runpy.run_module("jupyter_ddl.controller", run_name="__main__", alter_sys=True)


def _worker() -> None:
    threading.Thread(target=_tell_name, name="scheduler's name", daemon=True).start()
    _dask()


def _tell_name() -> None:
    """Dask says that it waits for a connection, whether it has no name or no time."""
    host = urlsplit(os.environ.get("DASK_SCHEDULER_ADDRESS", "")).hostname
    with contextlib.suppress(OSError):  # Dask tells of it
        socket.getaddrinfo(host, None)
        sys.stdout.write(f"{NAME_IS_KNOWN}: {host}\n")
        sys.stdout.flush()


def _dask() -> None:
    from dask.__main__ import main as dask

    dask()


def begin_again(
    run: Callable[[], None], goes_on: Callable[[int, bool], bool], *, is_heard: bool = False
) -> NoReturn:
    """Run something in a child process, again and again, until this process is told to end.

    Parameters
    ----------
    goes_on : callable
        Whether it is begun again: given the exit code, and whether one of its lives has told that
        it is ready.  Else this process ends with that code, and Kubernetes shows it.
    is_heard : bool
        Its standard output is kept from others: it says little there, and whether it is ready.
    """
    has_served = False
    # Taken by `sigwait` below: a handler would not run for a signal that comes right before a wait.
    signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    while True:
        ends = os.pipe() if is_heard else None
        status, was_told = _ended(_forked(run, ends))
        has_served = has_served or (ends is not None and _has_told(ends[0]))
        code = os.waitstatus_to_exitcode(status)
        if was_told or not goes_on(code, has_served):
            sys.exit(code if code >= 0 else 128 - code)
        if signal.sigtimedwait(_SIGNALS, _PAUSE_S) is not None:
            sys.exit(_EXIT)


def _forked(run: Callable[[], None], ends: tuple[int, int] | None) -> int:
    """The pid of a child, which writes into a pipe if there is one."""
    child = os.fork()
    if child == 0:
        # What is not the first process needs no handler, which would come too late before a wait.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if ends is not None:
            os.dup2(ends[1], 1)
            os.close(ends[0])
    if ends is not None:
        os.close(ends[1])
    if child == 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _AWAITED)
        run()
        sys.exit(0)
    return child


def _ended(child: int) -> tuple[int, bool]:
    """The wait status of a child's end, and whether it was told to end, as this process was.

    What others have left to the first process is buried.
    """
    was_told = False
    while True:
        signum = signal.sigwait(_AWAITED)
        if signum != signal.SIGCHLD:
            was_told = True
            os.kill(child, signum)
            continue
        pid = status = 0
        while pid != child:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
        else:
            return status, was_told


def _has_told(heard: int) -> bool:
    """Whether a child that has ended told that it is ready."""
    os.set_blocking(heard, False)  # what it has left behind may hold the other end
    with contextlib.suppress(BlockingIOError), os.fdopen(heard, "rb", buffering=0) as pipe:
        return _READY in (pipe.read(1 << 16) or b"")
    return False


if __name__ == "__main__":
    main()
