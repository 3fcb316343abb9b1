"""The worker's side of its zygote: start it, have it fork ranks, notice its death.

Everything here runs on the worker's event loop and waits with a deadline.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import socket
import subprocess
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence

import msgspec

from jupyter_ddl.errors import LaunchError
from jupyter_ddl.protocol.framing import FrameProtocol, encode_frame
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
from jupyter_ddl.store.processes import OWNER_VARIABLE, ZYGOTE_VARIABLE, kill_leftovers
from jupyter_ddl.worker.zygote_source import ForkedZygote, fork_zygote, has_source

__all__ = ["NO_ZYGOTE", "WorkerSettings", "Zygote", "telemetry_interval_s", "zygote_environment"]


# What a cluster tells each of its workers about rank processes.

_INTERVAL_VARIABLE = "JUPYTER_DDL_TELEMETRY_INTERVAL"
_DEFAULT_INTERVAL_S = 1.0
_MIN_INTERVAL_S = 0.1


class WorkerSettings(msgspec.Struct, frozen=True):
    """Settings of the plugin; the same on every worker of a cluster."""

    owner_token: str
    """Stands in the environment of every process below the workers of one cluster."""
    cpus_per_slot: int = 1
    """Threads that numerical libraries use in a rank."""
    prewarm: tuple[str, ...] = ()
    """Installed packages that the zygote imports ahead of need."""
    rank_memory_bytes: int | None = None
    """A rank whose process tree holds more is ended with failure kind ``memory``."""
    overlay: str = ""
    """Directory of packages that ranks find before all others; empty for none."""
    telemetry_topic: str = ""
    """Dask topic that samples of telemetry are published on."""
    telemetry_interval_s: float = 0.0
    """Seconds between samples; 0: none are taken."""
    shares_files: bool = True
    """Whether the worker sees the controller's run directories and blobs."""
    keeps_http: bool = False
    """Whether Dask's HTTP server stays: that of a worker which is somebody else's."""


def telemetry_interval_s(environ: Mapping[str, str]) -> float:
    """Seconds between samples as the environment says, by default 1; 0 switches them off."""
    try:
        wanted = float(environ.get(_INTERVAL_VARIABLE, _DEFAULT_INTERVAL_S))
    except ValueError:
        return _DEFAULT_INTERVAL_S
    if not math.isfinite(wanted):
        return _DEFAULT_INTERVAL_S
    return 0.0 if wanted <= 0 else max(_MIN_INTERVAL_S, wanted)


log = logging.getLogger(__name__)

NO_ZYGOTE = "0" * 32
"""In place of a zygote's id, where it is to be overwritten."""

START_TIMEOUT_S = 60.0
FORK_TIMEOUT_S = 30.0
_IMPORT_TIMEOUT_S = 180.0
"""Before a fork: torch on a host that has too much to do takes a minute."""
_CLOSE_TIMEOUT_S = 5.0
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")

_TRIM_VARIABLE, _TRIM_OF_DASK = "MALLOC_TRIM_THRESHOLD_", "65536"
"""What Dask's nannies set where the user has not."""


def zygote_environment(settings: WorkerSettings, zygote_id: str) -> dict[str, str]:
    """Environment of a zygote, and by that of its ranks."""
    threads = str(max(1, settings.cpus_per_slot))
    inherited = dict(os.environ)
    if settings.overlay:
        path = [settings.overlay, inherited.get("PYTHONPATH", "")]
        inherited["PYTHONPATH"] = os.pathsep.join(each for each in path if each)
    if inherited.get(_TRIM_VARIABLE) == _TRIM_OF_DASK:
        # Good for a worker that moves data; in a training every freed tensor would go back to the
        # system and be faulted in again by the next step: 15 to 20 % of a rank's CPU time.
        del inherited[_TRIM_VARIABLE]
    return {
        **inherited,
        **dict.fromkeys(_THREAD_VARIABLES, threads),
        # A package that only asks whether there is a GPU must not open CUDA here: no forked rank
        # could use it any more.
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
        OWNER_VARIABLE: settings.owner_token,
        ZYGOTE_VARIABLE: zygote_id,
    }


class Zygote:
    """One zygote process, from its start to its end; never restarted.

    Parameters
    ----------
    on_rank_exited : callable
        Called on the loop when a rank's process has ended.
    on_imported : callable
        Called on the loop when an :meth:`import_packages` is through.
    on_lost : callable
        Called on the loop, once, when the zygote has gone without being asked to.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        *,
        on_rank_exited: Callable[[RankExited], None],
        on_imported: Callable[[PackagesImported], None],
        on_lost: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._on_rank_exited = on_rank_exited
        self._on_imported = on_imported
        self._on_lost = on_lost
        self.id = uuid.uuid4().hex
        self._process: subprocess.Popen[bytes] | ForkedZygote | None = None
        self._asking: asyncio.Task[tuple[socket.socket, ForkedZygote] | None] | None = None
        self._source_pid: int | None = None
        self._socket: socket.socket | None = None
        self._protocol = FrameProtocol(self._on_frame, self._on_closed)
        self._decoder = msgpack_decoder(FromZygote)
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._forking: dict[str, asyncio.Future[int]] = {}
        self._asked: dict[str, None] = {}
        self._importing = 0
        self._through = asyncio.Event()
        """Set while nothing is imported."""
        self._through.set()
        self._closing = False
        self._reaping: asyncio.Task[None] | None = None
        self.is_lost = False
        self.loaded: tuple[str, ...] = ()
        """Top-level modules that it had loaded when it began to serve."""

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """Start the process and wait until it serves.  If this raises, call :meth:`close`.

        It is forked by the controller's source, which imports what is to be imported; where that
        can't be, it is a new Python and imports that itself.

        Raises
        ------
        LaunchError
            It ended, or did not answer within 60 s.
        """
        if not await self.fork_off():
            await self._serve_at(self._spawn())

    async def fork_off(self) -> bool:
        """The same if the source can fork it, else nothing; returns whether it could."""
        environment = zygote_environment(self._settings, self.id)
        asking = fork_zygote(self.id, self._settings.prewarm, environment, self._taken)
        self._asking = asyncio.create_task(asking, name="ddl-zygote-fork")
        try:
            await asyncio.wait({self._asking})
        finally:
            self.stop_asking()
        if self._asking.cancelled():
            raise LaunchError("this worker is closing; it starts no more rank processes")
        forked = self._asking.result()
        if forked is None:
            return False
        ours, self._process = forked
        await self._serve_at(ours)
        return True

    def _taken(self, source_pid: int) -> None:
        self._source_pid = source_pid

    @property
    def importing_pid(self) -> int | None:
        """The process that imports for it now, be it itself."""
        return self._source_pid if self._process is None else self.pid

    def stop_asking(self) -> None:
        """The source's answer, which may stand behind a long import, is not waited for any more."""
        if self._asking is not None:
            self._asking.cancel()

    async def _serve_at(self, ours: socket.socket) -> None:
        self._socket = ours
        loop = asyncio.get_running_loop()
        await loop.create_unix_connection(lambda: self._protocol, sock=ours)
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                await self._ready
        except TimeoutError:
            raise LaunchError(
                f"the zygote (pid {self.pid}) did not answer within {START_TIMEOUT_S:.0f} s; "
                f"the host is overloaded: ask for fewer workers"
            ) from None
        self.import_packages(self._settings.prewarm)

    def _spawn(self) -> socket.socket:
        """Start the process; return this end of its control socket."""
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-P", "-m", "jupyter_ddl.ranks.zygote"]
        with theirs, contextlib.ExitStack() as on_error:
            on_error.callback(ours.close)
            # On the loop's own thread: the kernel ties the zygote to the thread that forks it, and
            # a thread of a pool may end.  Takes about 2 ms.
            self._process = subprocess.Popen(
                [*command, str(theirs.fileno()), str(os.getpid())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                env=zygote_environment(self._settings, self.id),
                start_new_session=True,
            )
            on_error.pop_all()
        ours.setblocking(False)
        return ours

    @property
    def asked(self) -> tuple[str, ...]:
        """Packages that it was to import so far."""
        return tuple(self._asked)

    def gains(self, names: Sequence[str]) -> bool:
        """Whether another one could have packages from the source that this one would import."""
        return has_source() and not {*names} <= {*self._asked, *self.loaded}

    def import_packages(self, names: Sequence[str]) -> None:
        """Have packages imported ahead of the next fork, each once; returns at once."""
        new = tuple(name for name in dict.fromkeys(names) if name not in self._asked)
        if new and not self.is_lost:
            self._asked.update(dict.fromkeys(new))
            self._importing += 1
            self._through.clear()
            self._send(ImportPackages(new), fds=())

    async def through(self) -> None:
        """Wait until nothing is imported any more, or it is gone."""
        await self._through.wait()

    async def fork(self, name: str, rank_end: socket.socket) -> int:
        """Fork a rank that talks through ``rank_end``, once all imports are through; its pid.

        Raises
        ------
        LaunchError
            The fork failed, or the zygote is gone, imports for more than 3 minutes or did not
            answer within 30 s.
        """
        forked: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        limit_s = _IMPORT_TIMEOUT_S
        try:
            async with asyncio.timeout(limit_s):
                await self.through()
            limit_s = FORK_TIMEOUT_S
            self._forking[name] = forked
            self._send(ForkRank(name), fds=(rank_end.fileno(),))
            async with asyncio.timeout(limit_s):
                return await forked
        except TimeoutError:
            raise LaunchError(
                f"forking rank {name} took longer than {limit_s:.0f} s; an import in the "
                f"zygote (pid {self.pid}) hangs, or the host is overloaded"
            ) from None
        finally:
            self._forking.pop(name, None)

    def _send(self, message: ToZygote, fds: Sequence[int]) -> None:
        frame = encode_frame(msgspec.msgpack.encode(message))
        try:
            if self._socket is None or self.is_lost:
                raise BrokenPipeError("it has ended")
            # These frames are small and few, so the socket's buffer always has room.
            n_sent = socket.send_fds(self._socket, [frame], fds)
            if n_sent != len(frame):
                raise BrokenPipeError(f"{n_sent} of {len(frame)} bytes were taken")
        except OSError as error:
            raise LaunchError(
                f"the zygote (pid {self.pid}) can't be asked for {type(message).__name__}: {error}"
            ) from error

    def _on_frame(self, payload: bytes) -> None:
        message = self._decoder.decode(payload)
        if isinstance(message, RankExited):
            self._on_rank_exited(message)
        elif isinstance(message, RankForked):
            if (forked := self._forking.get(message.name)) is not None and not forked.done():
                forked.set_result(message.pid)
        elif isinstance(message, ForkFailed):
            error = LaunchError(f"rank {message.name} can't be forked: {message.message}")
            if (forked := self._forking.get(message.name)) is not None and not forked.done():
                forked.set_exception(error)
        elif isinstance(message, PackagesImported):
            self._importing -= 1
            if not self._importing:
                self._through.set()
            self._on_imported(message)
        elif isinstance(message, ZygoteReady) and not self._ready.done():
            self.loaded = message.loaded
            self._ready.set_result(None)

    def _on_closed(self) -> None:
        self.is_lost = True
        self._through.set()
        error = LaunchError(
            f"the zygote (pid {self.pid}) has ended; what it printed is in the worker's output"
        )
        served = self._ready.done()
        if not served:
            self._ready.set_exception(error)
        for forked in self._forking.values():
            if not forked.done():
                forked.set_exception(error)
        if served and not self._closing:
            self._reaping = asyncio.create_task(self._reap(), name="ddl-zygote-reap")
            self._on_lost()

    async def close(self) -> None:
        """End the zygote and everything below it.  May be called more than once."""
        self._closing = True
        self._protocol.close()
        if self._reaping is None:
            self._reaping = asyncio.create_task(self._reap(), name="ddl-zygote-reap")
        await self._reaping

    async def _reap(self) -> None:
        """Wait for the process; then end what it could not."""
        process = self._process
        if process is None:
            return
        try:
            await asyncio.to_thread(process.wait, _CLOSE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(process.wait, _CLOSE_TIMEOUT_S)
        left = await asyncio.to_thread(kill_leftovers, ZYGOTE_VARIABLE, self.id)
        if left:
            log.warning("zygote %s left processes %s; killed", self.pid, left)
