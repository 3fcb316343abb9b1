"""The zygote: imports what ranks will need, forks them on request, and ends what they leave.

``python -P -m jupyter_ddl.ranks.zygote FD PARENT_PID``, started by a Dask worker; or a fork of the
source that all workers of a controller share (:mod:`~jupyter_ddl.ranks.zygote_source`).  It has one
thread and runs no user code, so a fork of it is clean.  It adopts orphaned descendants: a process
that a rank has put into a session of its own is ended with that rank, and everything is ended with
the worker.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import select
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, TypeAlias

import msgspec

from jupyter_ddl.protocol.framing import FrameBuffer, encode_frame
from jupyter_ddl.protocol.rank_messages import (
    ForkFailed,
    ForkRank,
    FromZygote,
    ImportPackages,
    PackagesImported,
    RankExited,
    RankForked,
    ToZygote,
    ZygoteReady,
)
from jupyter_ddl.protocol.reading import msgpack_decoder
from jupyter_ddl.ranks import main as rank_main
from jupyter_ddl.ranks.imports import note_names
from jupyter_ddl.ranks.outputs import choose_renderers
from jupyter_ddl.ranks.payload import DECIDES_AT_IMPORT
from jupyter_ddl.ranks.stacks import StackDump
from jupyter_ddl.store.death_signal import (
    become_subreaper,
    bind_to_parent,
    bind_to_pipe,
    is_closed,
    request_death_signal,
)
from jupyter_ddl.store.exhaustion import used_up
from jupyter_ddl.store.processes import (
    RANK_VARIABLE,
    ZYGOTE_VARIABLE,
    child_pids,
    environment_value,
    kill_leftovers,
)

__all__ = ["ByPipe", "Zygote", "guard_zygote", "import_packages", "main", "prepare"]


# Stands beside a zygote while that can't hear signals, and ends what it would leave.
#
# A zygote that imports a package may be in C for seconds.  It is killed when its worker dies then,
# and its ranks with it; a program that a rank has started in a session of its own would go on.

_TIMEOUT_S = 30.0
_POLL_S = 0.02
_LOOK_S = 1.0


def guard_zygote(zygote_pid: int, inherited: Iterable[int]) -> NoReturn:
    """Called in a fresh fork of the zygote, with SIGTERM blocked; ends after it, or by its SIGKILL.

    Parameters
    ----------
    inherited
        File descriptors of the zygote: who waits for their end must not wait for this process.
    """
    exit_code = 1
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCONT, signal.SIG_DFL)
        for fd in inherited:
            os.close(fd)
        request_death_signal(signal.SIGTERM)
        while os.getppid() == zygote_pid:
            # SIGTERM is still blocked.  Not forever: the parent may have died just before.
            signal.sigtimedwait((signal.SIGTERM,), _LOOK_S)
        _end_all(os.environ.get(ZYGOTE_VARIABLE, ""))
        exit_code = 0
    finally:
        os._exit(exit_code)


def _end_all(zygote_id: str) -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    while zygote_id and kill_leftovers(ZYGOTE_VARIABLE, zygote_id) and time.monotonic() < deadline:
        time.sleep(_POLL_S)  # what was being started meanwhile is found by the next look


_END_TIMEOUT_S = 3.0
"""A worker that closes waits a little longer for its zygote, and then looks for what is left."""
_ORPHAN_TIMEOUT_S = 60.0
"""Nobody looks behind a worker that was killed.  On a host with too much to do, a process with
torch takes seconds to die, and what it leaves comes to light only then."""
_MAX_FDS_PER_READ = 16
_REPLACED = {
    "torch.distributed": ("init_process_group", "new_group"),
    "torch.multiprocessing.spawn": ("spawn", "start_processes"),
}
"""By :mod:`~jupyter_ddl.ranks.rendezvous` and :mod:`~jupyter_ddl.ranks.launchers`."""
_LAZY_PARTS = {
    "numpy": ("numpy.random",),
    "torch": ("torch._dynamo", "jupyter_ddl.ranks.file_store"),
    "transformers": ("transformers.trainer",),
}
"""What a package imports at first use, in every rank anew: numpy.random for its seed (20 ms),
torch._dynamo when an optimizer is made (0.9 s), transformers its Trainer (2 s); and what ranks
themselves import with torch."""


class ByParent:
    """How a zygote hears of the end of its worker, which is its parent."""

    def __init__(self, worker_pid: int) -> None:
        self._worker_pid = worker_pid
        self.fds: tuple[int, ...] = ()
        """What ranks must not keep."""

    def bind(self, death_signal: signal.Signals) -> None:
        bind_to_parent(self._worker_pid, death_signal)

    @property
    def is_gone(self) -> bool:
        return os.getppid() != self._worker_pid


class ByPipe:
    """The same where the worker is not its parent, but alone has the other end of a pipe."""

    def __init__(self, lifeline: int) -> None:
        self._lifeline = lifeline
        self.fds: tuple[int, ...] = (lifeline,)

    def bind(self, death_signal: signal.Signals) -> None:
        bind_to_pipe(self._lifeline, death_signal)

    @property
    def is_gone(self) -> bool:
        return is_closed(self._lifeline)


Worker: TypeAlias = ByParent | ByPipe


class Zygote:
    """Serves one worker until the worker's end of the socket closes or the worker dies."""

    def __init__(self, control: socket.socket, worker: Worker) -> None:
        self._control = control
        self._worker = worker
        self._buffer = FrameBuffer()
        self._rank_fds: deque[int] = deque()
        self._decoder = msgpack_decoder(ToZygote)
        self._ranks: dict[int, str] = {}
        self._stack_dump = StackDump()
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def serve(self) -> NoReturn:
        self._listen_to_signals()
        self._send(ZygoteReady(os.getpid(), _loaded()))
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._wake_read, select.POLLIN)
        while True:
            ready = {fd for fd, _ in poll.poll()}
            if self._wake_read in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wake_read, 4096)
                self._reap()
            if self._control.fileno() in ready:
                self._read_requests()

    def _listen_to_signals(self) -> None:
        become_subreaper()
        self._stack_dump.enable()
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGCONT, self._check_worker)
        signal.signal(signal.SIGTERM, lambda *_: self._end())
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        # SIGCONT wakes even a stopped zygote, whose handler then ends everything below it.
        self._worker.bind(signal.SIGCONT)

    def _check_worker(self, *_: object) -> None:
        if self._worker.is_gone:
            self._end()

    def _send(self, message: FromZygote) -> None:
        try:
            self._control.sendall(encode_frame(msgspec.msgpack.encode(message)))
        except OSError:
            self._end()

    def _read_requests(self) -> None:
        try:
            data, fds, _, _ = socket.recv_fds(self._control, 65536, _MAX_FDS_PER_READ)
        except ConnectionError:
            data, fds = b"", []
        if not data:
            self._end()
        self._rank_fds.extend(fds)
        for payload in self._buffer.feed(data):
            request = self._decoder.decode(payload)
            if isinstance(request, ForkRank):
                self._fork(request.name)
            else:
                self._import(request)

    def _import(self, request: ImportPackages) -> None:
        guard = self._fork_guard() if self._ranks else None
        # An import may hang in C, where no handler runs: then this process is to be killed.
        self._worker.bind(signal.SIGKILL)
        imported, failed = import_packages(request.names)
        self._worker.bind(signal.SIGCONT)
        if guard is not None:
            os.kill(guard, signal.SIGKILL)
            os.waitpid(guard, 0)
        self._send(PackagesImported(tuple(imported), failed, _loaded()))

    def _fork_guard(self) -> int | None:
        """A process that ends what ranks have started, should this one be killed."""
        zygote_pid = os.getpid()
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGCONT})
        try:
            pid = os.fork()
        except OSError:
            pid = None  # no process to spare: the import goes on without
        if pid == 0:
            inherited = (self._wake_read, self._wake_write, *self._worker.fds, *self._rank_fds)
            guard_zygote(zygote_pid, (self._control.detach(), *inherited))
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        return pid

    def _fork(self, name: str) -> None:
        if not self._rank_fds:
            self._send(ForkFailed(name, "no socket came with the request"))
            return
        rank_fd = self._rank_fds.popleft()
        # Frozen objects are not visited by the child's collector, so their pages stay shared.
        gc.freeze()
        zygote_pid = os.getpid()
        # The child must not see a signal before it has handlers of its own.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGCONT})
        try:
            pid = os.fork()
        except OSError as error:
            pid = -1
            self._send(ForkFailed(name, f"{error}{used_up(error)}"))
        if pid == 0:
            self._become_rank(name, rank_fd, zygote_pid, blocked)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        os.close(rank_fd)
        if pid > 0:
            self._ranks[pid] = name
            self._send(RankForked(name, pid))

    def _become_rank(
        self, name: str, rank_fd: int, zygote_pid: int, signals: set[signal.Signals | int]
    ) -> NoReturn:
        exit_code = 1
        try:
            os.setsid()
            bind_to_parent(zygote_pid)
            signal.set_wakeup_fd(-1)
            self._stack_dump.disable()
            for number in (signal.SIGCHLD, signal.SIGCONT, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.pthread_sigmask(signal.SIG_SETMASK, signals)
            self._control.close()
            for fd in (self._wake_read, self._wake_write, *self._worker.fds, *self._rank_fds):
                os.close(fd)
            gc.enable()
            exit_code = rank_main.run(name, socket.socket(fileno=rank_fd))
        except BaseException:  # noqa: BLE001 - the wall of the rank process
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(exit_code)

    def _reap(self) -> None:
        """Report ranks that ended, and end what they have left behind."""
        while (pid := _exited_child()) is not None:
            if pid in self._ranks:
                # Not reaped yet, so the number of its process group can't be another's.
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
            name = self._ranks.pop(pid, None)
            self._kill_orphans()
            if name is not None:
                self._send(_exit_message(name, pid, status))

    def _kill_orphans(self) -> None:
        alive = set(self._ranks.values())
        for pid in child_pids():
            if pid in self._ranks:
                continue
            rank = environment_value(pid, RANK_VARIABLE)
            if rank is not None and rank not in alive:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)

    def _end(self) -> NoReturn:
        """Kill every descendant, then leave.  Runs in a signal handler too."""
        timeout_s = _ORPHAN_TIMEOUT_S if self._worker.is_gone else _END_TIMEOUT_S
        deadline = time.monotonic() + timeout_s
        while (children := child_pids()) and time.monotonic() < deadline:
            for pid in children:
                _kill(pid, whole_group=pid in self._ranks)
            # Killed children hand theirs over to this process: look again.
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            time.sleep(0.002)
        os._exit(0)


def _kill(pid: int, *, whole_group: bool) -> None:
    for send in (os.killpg, os.kill) if whole_group else (os.kill,):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            send(pid, signal.SIGKILL)


def import_packages(names: Iterable[str]) -> tuple[list[str], dict[str, str]]:
    """Import what ranks are to find imported; returns what that was, and why others were not."""
    imported, failed = [], {}
    n_before = len(sys.modules)
    wanted = [name for name in names if name not in DECIDES_AT_IMPORT]
    parts = [each for name in wanted for each in (name, *_LAZY_PARTS.get(name, ()))]
    for name in parts:
        try:
            importlib.import_module(name)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - any package, any failure
            failed[name] = f"{type(error).__name__}: {error}"
        else:
            imported.append(name)
    if len(sys.modules) != n_before:  # else it was all there: nothing of it is touched
        note_names(_replaced_functions())
        gc.collect()
    return imported, failed


def _replaced_functions() -> list[Callable[..., Any]]:
    """Those in whose place ranks put their own, of modules that are imported."""
    places = ((sys.modules.get(module), names) for module, names in _REPLACED.items())
    return [
        getattr(module, name) for module, names in places for name in names if hasattr(module, name)
    ]


def _loaded() -> tuple[str, ...]:
    """Top-level modules of packages."""
    return tuple({name.partition(".")[0] for name in sys.modules} - sys.stdlib_module_names)


def _exited_child() -> int | None:
    """A child that has ended, still a zombie; None if there is none."""
    try:
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return None if found is None else found.si_pid


def _exit_message(name: str, pid: int, status: int) -> RankExited:
    if os.WIFSIGNALED(status):
        return RankExited(name, pid, signal_number=os.WTERMSIG(status))
    return RankExited(name, pid, exit_code=os.waitstatus_to_exitcode(status))


def prepare() -> tuple[socket.socket, int, list[str]]:
    """Begin a process that forks: its socket, its parent, and what else it was started with."""
    fd, parent_pid, *others = sys.argv[1:]
    sys.argv[:] = ["cell"]  # scripts that become cells parse their arguments: there are none
    choose_renderers(os.environ)  # before anything that draws is imported
    bind_to_parent(int(parent_pid))
    gc.disable()
    control = socket.socket(fileno=int(fd))
    control.set_inheritable(False)
    return control, int(parent_pid), others


def main() -> NoReturn:
    control, worker_pid, _ = prepare()
    Zygote(control, ByParent(worker_pid)).serve()


if __name__ == "__main__":
    main()
