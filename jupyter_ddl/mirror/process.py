"""The mirror's main: bring a cluster up or join it, then stand for its controller here."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Iterable
from typing import get_args

import msgspec

from jupyter_ddl import __version__
from jupyter_ddl.backends.base import ControllerHost, backend_plugin
from jupyter_ddl.background import BackgroundTasks
from jupyter_ddl.client.specs import remember_spec
from jupyter_ddl.client.start import How
from jupyter_ddl.controller.blob_care import care_for_blobs, use_memory
from jupyter_ddl.controller.process import (
    Phases,
    care_on,
    keep_log_small,
    log_path,
    run_named,
    start_threads,
    unless_stopped,
)
from jupyter_ddl.controller.server import Server
from jupyter_ddl.errors import ClusterError, ControllerError, JupyterDDLError
from jupyter_ddl.formats import format_duration
from jupyter_ddl.mirror.proxy import Proxy
from jupyter_ddl.mirror.remote import Remote
from jupyter_ddl.mirror.runs import RunCopies
from jupyter_ddl.protocol.cluster import ClusterSpec
from jupyter_ddl.protocol.link import Link
from jupyter_ddl.store.awake import awake_s
from jupyter_ddl.store.connection import (
    ConnectionInfo,
    connection_path,
    socket_path,
    write_connection,
)
from jupyter_ddl.store.paths import home_id
from jupyter_ddl.store.processes import this_process

__all__ = ["main"]

log = logging.getLogger("jupyter_ddl.mirror")

_TICK_S = 1.0
_FIRST_CONNECTION_S = 60.0
_COPY_S = 1.0
"""Between two looks at what goes on; a cell that is executed is looked at more often."""
_REST, _LONGEST_REST_S = 10.0, 10.0
"""So many times as long as a look has taken, that run is left alone: 10,000 files take a second."""
_LOOK_S = 5.0
"""Between two looks at the list of all runs."""
_CHECKPOINT_BYTES = 256 << 20
"""A larger checkpoint is not copied where it comes too late for the next one anyway."""
_UNUSED_S = 1800.0
"""A mirror that nobody was connected to for so long ends: the next use starts another one."""
_CLOSE_S = 15.0


def main() -> None:
    """Entry point; the exit status is 0 unless there is no cluster to stand for."""
    words = argparse.ArgumentParser(prog="python -m jupyter_ddl.mirror", description=__doc__)
    words.add_argument("how", choices=get_args(How))
    how: How = words.parse_args().how

    async def serve(spec: ClusterSpec, phases: Phases) -> None:
        await _Mirror(spec, phases).serve(how)

    run_named(serve)


class _Mirror:
    """One process' life; made on its loop."""

    def __init__(self, spec: ClusterSpec, phases: Phases) -> None:
        self._spec = spec
        self._phases = phases
        self._stopped = asyncio.Event()
        self._tasks = BackgroundTasks(log, f"mirror of {spec.name}", self._failed)
        self._host: ControllerHost = backend_plugin(spec.backend).controller_host(spec)
        self._remote = Remote(self._host, spec.name, self._connected)
        self._copies = RunCopies(self._remote.ask, spec.name, home=home_id())
        self._proxy = Proxy(spec.name, self._host, self._remote, self._copies, self._stop)
        self._server = Server(socket_path(spec.name), self._proxy)
        self._used_s = awake_s()
        self._reasons: list[str] = []
        self._resumed: list[str] = []
        self._put_off: frozenset[str] = frozenset()
        """Runs that the controller is to go on with, and could not be asked for."""
        self._due_s: dict[str, float] = {}
        """When runs that go on are looked at again, at the earliest."""

    async def serve(self, how: How) -> None:
        loop = asyncio.get_running_loop()
        start_threads(loop)
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(signum, self._stop, f"signal {signum.name}")
        memory = await asyncio.to_thread(use_memory)
        self._tasks.start(care_on(), name="care for blobs")
        try:
            beginning = asyncio.create_task(self._begin(how))
            await unless_stopped(beginning, self._stopped, self._reasons)
            await self._announce()
            await self._until_over()
        finally:
            with contextlib.suppress(FileNotFoundError):
                connection_path(self._spec.name).unlink()
            async with asyncio.timeout(_CLOSE_S):
                await self._server.close()
                await self._tasks.close()
                await self._proxy.close()
                await self._host.close()
                self._copies.close()
                if memory is not None:
                    os.close(memory)
                await asyncio.to_thread(care_for_blobs, leaving=True)

    async def _begin(self, how: How) -> None:
        is_new = how == "start" or not await self._join(must=how == "join")
        if is_new:
            await self._host.start(self._tell)
        self._copies.place = self._host.place
        if not self._host.keeps_runs:
            self._copies.bring_checkpoints(_CHECKPOINT_BYTES)
        self._tasks.start(self._remote.keep(), name="connection")
        try:
            await self._remote.connected(_FIRST_CONNECTION_S)
            self._tell("copying its runs")
            lost = await self._copy()
            self._resumed = sorted(self._proxy.active)
            if is_new:
                self._resumed += await self._give(lost)
        except BaseException:
            if is_new:
                await asyncio.shield(self._host.end())
            raise

    async def _join(self, *, must: bool) -> bool:
        found = await self._host.join()
        if found is not None:
            remember_spec(msgspec.structs.replace(found, name=self._spec.name))
        elif must:
            raise ClusterError(
                f"no cluster named {self._spec.name!r} is found elsewhere; `%cluster list` shows "
                f"those that there are"
            )
        return found is not None

    async def _announce(self) -> None:
        await self._server.start()
        plugin = backend_plugin(self._spec.backend)
        info = ConnectionInfo(
            self._spec.name,
            plugin.name,
            str(socket_path(self._spec.name)),
            this_process(),
            __version__,
            shares_files=False,
        )
        write_connection(info)
        self._phases.tell("ready", resumed=self._resumed)
        self._phases.close()
        self._tasks.start(self._copy_on(), name="copies")

    async def _connected(self, link: Link) -> None:
        await self._proxy.connected(link)

    async def _copy_on(self) -> None:
        """Keep the copies true, until cancelled; what the controller has lost, it is given."""
        looked_s = awake_s()
        while True:
            await asyncio.sleep(_COPY_S)
            try:
                for run_id in self._proxy.active:
                    await self._bring_in_turn(run_id)
                if awake_s() - looked_s > _LOOK_S:
                    looked_s = awake_s()
                    # Whom it drove a moment ago; it has lost them since.
                    wanted = self._proxy.active | self._put_off
                    lost = await self._copy()
                    left = self._put_off - self._proxy.active
                    await self._give(sorted(left.union(wanted.intersection(lost))))
            except JupyterDDLError as error:
                log.warning("runs are not copied now: %s", error.message)
            except OSError as error:  # of this home's disk: the next look tries again
                log.warning("runs are not copied now: %s", error)

    async def _copy(self) -> list[str]:
        """Bring all that is new here; returns runs that are here, not over, and lost there."""
        look = await self._copies.look()
        for each in look.runs:
            if each.is_changed and each.mark.is_active:
                await self._bring_in_turn(each.mark.run_id)
            elif each.is_changed:
                await self._bring(each.mark.run_id)
        active = frozenset(each.mark.run_id for each in look.runs if each.mark.is_active)
        self._due_s = {run_id: self._due_s.get(run_id, 0.0) for run_id in active}
        self._proxy.active = active
        for run_id in self._proxy.active:
            await self._proxy.write_event_files(run_id)
        return [each.run_id for each in look.lost if each.can.can_resume]

    async def _bring_in_turn(self, run_id: str) -> None:
        """Of a run that goes on: not so often that looking at its files keeps both sides busy."""
        began_s = awake_s()
        if began_s >= self._due_s.get(run_id, 0.0):
            await self._bring(run_id)
            now_s = awake_s()
            self._due_s[run_id] = now_s + min(_LONGEST_REST_S, _REST * (now_s - began_s))

    async def _bring(self, run_id: str) -> None:
        try:
            await self._copies.bring(run_id)
        except JupyterDDLError as error:
            if self._remote.trouble:
                raise  # nor is any other one
            log.warning("run %s is not copied now: %s", run_id, error.message)

    async def _give(self, run_ids: Iterable[str]) -> list[str]:
        """Have the controller go on with runs that it does not have.

        Those for which it can't be reached are put off.
        """
        given, put_off = [], set()
        for run_id in run_ids:
            try:
                await self._proxy.resume(run_id)
            except ControllerError as error:
                log.warning("run %s does not go on yet: %s", run_id, error.message)
                put_off.add(run_id)
            except JupyterDDLError as error:
                log.warning("run %s does not go on: %s", run_id, error.message)
            else:
                given.append(run_id)
        self._put_off = frozenset(put_off)
        return given

    async def _until_over(self) -> None:
        while not self._stopped.is_set():
            try:
                async with asyncio.timeout(_TICK_S):
                    await self._stopped.wait()
            except TimeoutError:
                await asyncio.to_thread(keep_log_small, log_path(self._spec.name))
                self._look_for_an_end()

    def _look_for_an_end(self) -> None:
        if self._server.n_sessions:
            self._used_s = awake_s()
        if self._proxy.is_ending:
            return  # it says when all of the cluster is gone
        if self._remote.gone:
            self._stop(self._remote.gone)
        elif not connection_path(self._spec.name).exists():
            self._stop("nobody can reach it any more: its connection file is gone")
        elif awake_s() - self._used_s > _UNUSED_S:
            self._stop(f"nobody has used it for {format_duration(_UNUSED_S)}; the cluster goes on")

    def _tell(self, text: str) -> None:
        self._phases.tell("phase", text=text)

    def _stop(self, reason: str) -> None:
        log.info("ending: %s", reason)
        self._reasons.append(reason)
        self._stopped.set()

    def _failed(self, error: BaseException) -> None:
        self._stop(f"a task failed: {error!r}")
