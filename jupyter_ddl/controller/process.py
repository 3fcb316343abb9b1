"""The controller's main: start, serve, end by itself, leave nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jupyter_ddl import __version__
from jupyter_ddl.backends.base import backend_plugin
from jupyter_ddl.errors import ClusterError, JupyterDDLError
from jupyter_ddl.protocol.cluster import SPEC_FILE, ClusterSpec
from jupyter_ddl.protocol.reading import from_json
from jupyter_ddl.store.atomic import write_whole
from jupyter_ddl.store.awake import AwakeLoop
from jupyter_ddl.store.connection import (
    ConnectionInfo,
    connection_path,
    hold_name,
    is_lost,
    read_connection,
    remove_scratch,
    socket_path,
    write_connection,
)
from jupyter_ddl.store.locks import check_home, release_lock
from jupyter_ddl.store.paths import runtime_dir
from jupyter_ddl.store.processes import (
    OWNER_VARIABLE,
    ProcessIdentity,
    kill_leftovers,
    pids_by,
    this_process,
)

if TYPE_CHECKING:
    from jupyter_ddl.controller.service import ClusterService

__all__ = [
    "Phases",
    "Post",
    "care_on",
    "end_leftovers",
    "keep_log_small",
    "log_path",
    "main",
    "run_named",
    "start_threads",
    "unless_stopped",
]


# Ends processes that a controller which no longer exists left behind.
#
# Every process below a controller carries its token.  PR_SET_PDEATHSIG already ends them with their
# parent; what escapes (a user's own subprocess that outlived its rank) is found here.

log = logging.getLogger(__name__)


def end_leftovers() -> None:
    """Kill processes whose controller is gone."""
    for token in pids_by(OWNER_VARIABLE):
        if _is_owner_lost(token):
            ended = kill_leftovers(OWNER_VARIABLE, token)
            log.warning("ended %d processes of the lost controller %s", len(ended), token)


def _is_owner_lost(token: str) -> bool:
    try:
        return is_lost(ProcessIdentity.of_token(token))
    except ValueError:
        return False  # not a token of ours: not ours to judge


log = logging.getLogger("jupyter_ddl.controller")

_LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_TICK_S = 1.0
_BLOB_CARE_S = 600.0
MAX_LOG_BYTES = 64 << 20
KEPT_LOG_BYTES = 8 << 20
_CLOSE_TIMEOUT_S = 15.0
_N_THREADS = 6


def log_path(name: str) -> Path:
    """Where a controller and its workers log."""
    return runtime_dir() / f"{name}.log"


class Phases:
    """Tells the starting client what happens, as long as it listens."""

    def __init__(self) -> None:
        # Workers inherit fd 1: give them the log, and keep the pipe to the client to ourselves.
        self._fd: int | None = os.dup(1)
        os.dup2(2, 1)

    def tell(self, kind: str, **fields: Any) -> None:
        """Write one line; a client that has gone is no reason to stop."""
        if self._fd is None:
            return
        try:
            os.write(self._fd, json.dumps({"kind": kind, **fields}).encode() + b"\n")
        except OSError:
            self.close()

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


class Post(NamedTuple):
    """Where a controller that no client of its host has started finds its spec, and listens."""

    folder: Path
    """With the spec, and the keys of the port."""
    port: int

    @classmethod
    def of(cls, words: Sequence[str]) -> Post | None:
        """As the command line says it: ``FOLDER PORT``, or nothing."""
        if not words:
            return None
        folder, port = words
        return cls(Path(folder), int(port))

    def take(self) -> None:
        """Put the spec where it is read, and the log where whoever runs this process sees it."""
        spec = os.open(self.folder / SPEC_FILE, os.O_RDONLY)
        os.dup2(spec, 0)
        os.close(spec)
        logging.basicConfig(level=logging.INFO, format=_LOG_FORMAT)
        handler = logging.StreamHandler(os.fdopen(os.dup(2), "w"))
        handler.setFormatter(logging.Formatter(_LOG_FORMAT))
        logging.getLogger().addHandler(handler)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 2)  # until the log has its file
        os.close(nowhere)


def main(post: Post | None = None) -> None:
    """Entry point; the exit status is 0 unless the cluster could not start.

    Parameters
    ----------
    post : Post, optional
        By default a client of this host has started it, and its spec comes on standard input.
    """
    gc.disable()  # none of what is imported is garbage, and looking for some takes 0.2 s
    if post is not None:
        post.take()
    run_named(
        lambda spec, phases: _serve(spec, phases, post),
        lambda spec: backend_plugin(spec.backend).enter_controller(spec),
    )


def run_named(
    serve: Callable[[ClusterSpec, Phases], Coroutine[Any, Any, None]],
    enter: Callable[[ClusterSpec], None] = lambda _: None,
) -> None:
    """Read a cluster's spec, hold its name, and serve it until its end.

    Parameters
    ----------
    serve : callable
        Makes what runs on the loop; an error of ours before it is ready is told to the client.
    enter : callable
        Called before there is a loop, while the process has one thread.
    """
    logging.basicConfig(level=logging.INFO, format=_LOG_FORMAT)
    logging.getLogger("distributed").setLevel(logging.WARNING)
    phases = Phases()
    try:
        spec = from_json(sys.stdin.buffer.read(), ClusterSpec)
        lock = hold_name(
            spec.name, lambda: read_connection(spec.name) is not None, spec.start_timeout_s
        )
        try:
            check_home()
            _begin_log(spec.name)
            remove_scratch(spec.name)
            enter(spec)
            with asyncio.Runner(loop_factory=AwakeLoop) as runner:
                runner.run(serve(spec, phases))
        finally:
            remove_scratch(spec.name)
            release_lock(lock)
    except JupyterDDLError as error:
        phases.tell("error", error=type(error).__name__, message=error.message)
        log.error("not started: %s", error.message)
        sys.exit(1)


def _begin_log(name: str) -> None:
    """Write to a new log from now on; the one of the controller before is kept.

    Only who holds the name does this: a log that is in use is never moved away.
    """
    path = log_path(name)
    if path.exists():
        path.replace(path.with_suffix(".log.1"))
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    os.close(fd)


def keep_log_small(path: Path) -> None:
    """Put the end of a log that has grown large beside it, and begin anew.

    Whoever writes to it appends, and goes on at its new end.
    """
    try:
        if path.stat().st_size <= MAX_LOG_BYTES:
            return
        with path.open("rb") as file:
            file.seek(-KEPT_LOG_BYTES, os.SEEK_END)
            write_whole(path.with_suffix(".log.1"), file.read())
        os.truncate(path, 0)
    except OSError as error:  # a full disk, for instance: the next round tries again
        log.debug("the log is not shortened: %s", error)


async def _serve(spec: ClusterSpec, phases: Phases, post: Post | None) -> None:
    # Here, behind the name: of all that start a lost controller again, one alone takes the second
    # of CPU time that Dask's import costs.
    from jupyter_ddl.backends.certificates import server_context
    from jupyter_ddl.controller.blob_care import care_for_blobs, use_memory
    from jupyter_ddl.controller.handlers import Requests
    from jupyter_ddl.controller.server import Server
    from jupyter_ddl.controller.service import ClusterService
    from jupyter_ddl.driving.unpickling import unpickle_nothing

    gc.freeze()
    gc.enable()
    process = this_process()
    stopped = asyncio.Event()
    reasons: list[str] = []
    is_over = False

    def tell_off(reason: str) -> None:
        reasons.append(reason)
        stopped.set()

    def stop(reason: str) -> None:
        nonlocal is_over
        is_over = True
        tell_off(reason)

    loop = asyncio.get_running_loop()
    start_threads(loop)
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(signum, tell_off, f"signal {signum.name}")
    memory = await asyncio.to_thread(use_memory)
    leftovers = asyncio.create_task(asyncio.to_thread(end_leftovers))
    service = ClusterService(spec, process.token)
    if not service.backend.hosts_scheduler:
        unpickle_nothing()
    try:
        opening = asyncio.create_task(service.open(lambda text: phases.tell("phase", text=text)))
        await unless_stopped(opening, stopped, reasons)
        # Before anybody can ask for them.
        resumed = await service.runs.resume_unfinished()
        path = socket_path(spec.name)
        server = Server(path, Requests(service, log_path(spec.name), stop))
        await server.start()
        if post is not None:
            await server.listen(server_context(post.folder), post.port)
        info = ConnectionInfo(
            spec.name,
            spec.backend,
            str(path),
            process,
            __version__,
            shares_files=service.backend.shared_filesystem,
        )
        write_connection(info)
        phases.tell("ready", resumed=resumed)
        phases.close()
        log.info("ready; resumed runs: %s", ", ".join(resumed) or "none")
        caring = asyncio.create_task(care_on())
        await _until_over(service, connection_path(spec.name), stopped, stop)
        caring.cancel()
        log.info("ending: %s", "; ".join(reasons))
        await server.close()
    finally:
        await leftovers
        with contextlib.suppress(FileNotFoundError):
            connection_path(spec.name).unlink()
        async with asyncio.timeout(_CLOSE_TIMEOUT_S):
            # Who only ends this process may have another one in mind that goes on.
            await (service.close("; ".join(reasons)) if is_over else service.leave())
            if memory is not None:
                os.close(memory)
            await asyncio.to_thread(care_for_blobs, leaving=True)


def start_threads(loop: asyncio.AbstractEventLoop) -> None:
    """Start all threads that work beside the loop takes, while the host has some to spare.

    Writing a run's record is such work: without a thread for it, the run would fail.
    """
    pool = ThreadPoolExecutor(_N_THREADS, thread_name_prefix="ddl")
    all_there = threading.Barrier(_N_THREADS + 1)
    for _ in range(_N_THREADS):
        pool.submit(all_there.wait)
    all_there.wait()
    loop.set_default_executor(pool)


async def unless_stopped(
    opening: asyncio.Task[None], stopped: asyncio.Event, reasons: list[str]
) -> None:
    """Wait for the cluster, or for whoever started it to change their mind.

    Raises
    ------
    ClusterError
        They did; the task is over by then.
    """
    stopping = asyncio.create_task(stopped.wait())
    try:
        await asyncio.wait({opening, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not opening.done():
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)
            raise ClusterError(f"given up while it was starting: {'; '.join(reasons)}")
    finally:
        stopping.cancel()
    opening.result()


async def care_on() -> None:
    """Look after the blobs of this home, until cancelled."""
    from jupyter_ddl.controller.blob_care import care_for_blobs

    while True:
        await asyncio.to_thread(care_for_blobs)
        await asyncio.sleep(_BLOB_CARE_S)


async def _until_over(
    service: ClusterService, announced: Path, stopped: asyncio.Event, stop: Callable[[str], None]
) -> None:
    while not stopped.is_set():
        try:
            async with asyncio.timeout(_TICK_S):
                await stopped.wait()
        except TimeoutError:
            await asyncio.to_thread(keep_log_small, log_path(service.spec.name))
            reason = service.expired() or _unreachable(service, announced)
            if reason is not None:
                stop(reason)


def _unreachable(service: ClusterService, announced: Path) -> str | None:
    """Why an unannounced cluster is to end, or None: runs that are active are seen through."""
    if service.is_working or announced.exists():
        return None
    return f"nobody can reach it any more: {announced} is gone"
