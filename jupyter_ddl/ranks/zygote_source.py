"""The source of zygotes: imports heavy packages once for all workers of a controller on its host.

``python -P -m jupyter_ddl.ranks.zygote_source FD PARENT_PID NAME…``, started by a controller, with
the environment of its workers' zygotes.  Workers send it requests through ``FD``, which they have
inherited; nothing can be connected to.  It answers each by a fork that becomes the zygote of this
worker, or by closing the zygote's socket: then the worker starts one of its own.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NoReturn

from jupyter_ddl.protocol.rank_messages import PID_BYTES, ForkZygote
from jupyter_ddl.protocol.reading import msgpack_decoder
from jupyter_ddl.ranks.stacks import StackDump
from jupyter_ddl.ranks.zygote import ByPipe, Zygote, import_packages, prepare
from jupyter_ddl.store.death_signal import is_closed
from jupyter_ddl.store.packages import EnvironmentReader
from jupyter_ddl.store.processes import ZYGOTE_VARIABLE, mark_fork

__all__ = ["Source", "main"]

_MAX_BYTES = 1 << 20
_DIRECTORY = "the working directory"


class Source:
    """Forks zygotes until its controller is gone, or packages on disk are other ones.

    It has one thread and runs no user code, so a fork of it is clean.
    """

    def __init__(self, requests: socket.socket, environment: Mapping[str, str]) -> None:
        self._requests = requests
        self._decoder = msgpack_decoder(ForkZygote)
        self._environment = _comparable(environment)
        self._installed = EnvironmentReader(sys.path)
        self._stamp = self._installed.stamp
        self._stack_dump = StackDump()
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def serve(self, names: Iterable[str]) -> NoReturn:
        """Answer requests, once packages are imported that are likely to be asked for."""
        self._stack_dump.enable()
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        import_packages(names)
        poll = select.poll()
        poll.register(self._requests, select.POLLIN)
        poll.register(self._wake_read, select.POLLIN)
        while True:
            ready = {fd for fd, _ in poll.poll()}
            if self._wake_read in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wake_read, 4096)
                _reap()
            if self._requests.fileno() in ready:
                self._answer()

    def _answer(self) -> None:
        data, fds, _, _ = socket.recv_fds(self._requests, _MAX_BYTES, 2, socket.MSG_CMSG_CLOEXEC)
        if not data:
            sys.exit()  # nobody is left who could ask
        try:
            request = self._decoder.decode(data)
            if len(fds) == 2 and self._can_serve(request, lifeline=fds[1]):
                with contextlib.suppress(OSError):  # it has just gone; or no process is to spare
                    os.write(fds[0], _encoded_pid())
                    import_packages(request.imports)
                    self._fork(request, *fds)
        finally:
            for fd in fds:
                os.close(fd)

    def _can_serve(self, request: ForkZygote, lifeline: int) -> bool:
        if is_closed(lifeline):
            return False  # it has waited for too long
        if self._installed.stamp != self._stamp:
            sys.exit("packages have changed: the next source imports what is there now")
        here = {**self._environment, _DIRECTORY: str(Path.cwd())}
        there = {**_comparable(request.environment), _DIRECTORY: request.directory}
        differ = sorted(name for name, _ in here.items() ^ there.items())
        if differ:
            names = ", ".join(dict.fromkeys(differ))
            print(f"a zygote is not forked: {names} differs", file=sys.stderr, flush=True)  # noqa: T201
        return not differ

    def _fork(self, request: ForkZygote, control: int, lifeline: int) -> None:
        # Frozen objects are not visited by the child's collector, so their pages stay shared.
        gc.freeze()
        pid = os.fork()
        if pid == 0:
            self._become_zygote(request, control, lifeline)

    def _become_zygote(self, request: ForkZygote, control: int, lifeline: int) -> NoReturn:
        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            self._stack_dump.disable()
            self._requests.close()
            for fd in (self._wake_read, self._wake_write):
                os.close(fd)
            mark_fork(ZYGOTE_VARIABLE, request.zygote_id)
            worker = ByPipe(lifeline)
            worker.bind(signal.SIGCONT)
            sock = socket.socket(fileno=control)
            # It is not the worker's child: this tells which process it is, whoever has its pid.
            itself = os.pidfd_open(os.getpid())
            socket.send_fds(sock, [_encoded_pid()], [itself])
            os.close(itself)
            Zygote(sock, worker).serve()
        except BaseException:  # noqa: BLE001 - the wall of the zygote process
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(1)


def _comparable(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name != ZYGOTE_VARIABLE}


def _encoded_pid() -> bytes:
    return os.getpid().to_bytes(PID_BYTES, "big")


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def main() -> NoReturn:
    environment = dict(os.environ)  # as it was started: what follows changes it
    requests, _, names = prepare()
    Source(requests, environment).serve(names)


if __name__ == "__main__":
    main()
