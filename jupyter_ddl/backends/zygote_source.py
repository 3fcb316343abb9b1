"""The controller's source of zygotes: one process that imports packages for all local workers."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence

from jupyter_ddl.protocol.cluster import ClusterSpec
from jupyter_ddl.store.processes import this_process
from jupyter_ddl.worker.zygote_process import NO_ZYGOTE, WorkerSettings, zygote_environment
from jupyter_ddl.worker.zygote_source import offer_source

__all__ = ["SourceProcess", "keep_source", "offered_source"]

log = logging.getLogger(__name__)

_LONG_S = 60.0

_OF_NANNIES = {"PYTHONHASHSEED": "6640"}
"""What Dask gives workers, whatever the user has set.  A source with another environment than a
zygote's is refused by it, so a change of this costs time alone."""


class SourceProcess:
    """Made, and kept, on the main thread: the kernel ties the process to the thread's life.

    Parameters
    ----------
    environment : mapping
        That of the zygotes.
    imports : sequence of str
        What it imports at once.  After its end it is started without: what has ended it might be
        one of them.
    """

    def __init__(self, environment: Mapping[str, str], imports: Sequence[str] = ()) -> None:
        self._requests, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._environment = dict(environment)
        self._pause_s = 0.0
        self._process = self._start(imports)
        offer_source(self._requests)

    @property
    def pid(self) -> int:
        return self._process.pid

    def let_go(self) -> None:
        """From here on, processes that were forked from this one by now can ask it, and no other.

        It ends by itself when none of them is left.
        """
        offer_source(None)
        self._requests.close()

    def keep(self) -> None:
        """Start it again if it was ended; less often where that happens again and again."""
        lived_s = time.monotonic() - self._started_s
        if not self._process.poll() or lived_s < self._pause_s:
            return  # it runs, or nobody is left who could ask, or not so soon
        self._pause_s = 0.0 if lived_s > _LONG_S else min(_LONG_S, 2 * self._pause_s + 1)
        log.info("the source of zygotes has ended; another one is started")
        self._process = self._start()

    def close(self) -> None:
        """End it.  Zygotes go on."""
        self.let_go()
        self._theirs.close()
        self._process.kill()
        self._process.wait()

    def _start(self, imports: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        self._started_s = time.monotonic()
        command = [sys.executable, "-P", "-m", "jupyter_ddl.ranks.zygote_source"]
        fd = self._theirs.fileno()
        return subprocess.Popen(
            [*command, str(fd), str(os.getpid()), *imports],
            pass_fds=(fd,),
            stdin=subprocess.DEVNULL,
            env=self._environment,
            start_new_session=True,
        )


_source: SourceProcess | None = None


@contextlib.contextmanager
def offered_source(spec: ClusterSpec) -> Iterator[None]:
    """Start a source; what this controller forks within this can ask it."""
    global _source
    settings = WorkerSettings(this_process().token, spec.cpus_per_worker)
    try:
        environment = {**zygote_environment(settings, NO_ZYGOTE), **_OF_NANNIES}
        _source = SourceProcess(environment, spec.prewarm)
    except OSError as error:  # workers start their zygotes themselves
        log.warning("there is no source of zygotes: %s", error)
    yield
    if _source is not None:
        _source.let_go()


def keep_source() -> None:
    """Start the source again if it was ended."""
    if _source is not None:
        try:
            _source.keep()
        except OSError as error:
            log.warning("the source of zygotes can't be started: %s", error)
