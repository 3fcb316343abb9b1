"""Carries out what a browser asks for.  Every request ends in one answer or one refusal."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

import msgspec

from jupyter_ddl.backends.base import backend_plugin
from jupyter_ddl.client.clusters import cluster_spec
from jupyter_ddl.client.elsewhere import delete_named
from jupyter_ddl.client.history import remove_run
from jupyter_ddl.client.run import Run
from jupyter_ddl.client.session import Session, choose_cluster
from jupyter_ddl.client.start import packages_to_warm
from jupyter_ddl.client.submit import go_on_with
from jupyter_ddl.commands.cluster import own_options
from jupyter_ddl.commands.runs import compare_runs
from jupyter_ddl.errors import (
    ControllerError,
    JupyterDDLError,
    ProtocolError,
    RunNotFoundError,
    StorageError,
)
from jupyter_ddl.ledger.run_state import RunState
from jupyter_ddl.protocol import requests as down
from jupyter_ddl.protocol import view_messages as say
from jupyter_ddl.protocol.cluster import ClusterSpec
from jupyter_ddl.protocol.replies import LogText
from jupyter_ddl.server.feeds import cluster_of
from jupyter_ddl.server.first_view import columns_kept
from jupyter_ddl.server.links import Links
from jupyter_ddl.server.run_list import Folds, check_run, trouble_of
from jupyter_ddl.store.processes import end_process
from jupyter_ddl.views.analysis import Analysis, analysis_of
from jupyter_ddl.views.answers import MAX_LINES, read_of, stop_of
from jupyter_ddl.views.channel import Answer
from jupyter_ddl.views.compare import MAX_COMPARED
from jupyter_ddl.views.drawing import plain_lines

__all__ = ["Requests"]

_MAX_TEXT = 4096
_LOG_BYTES = 64_000
_STOP_TIMEOUT_S = 5.0
_STOP_GRACE_S = 10.0

_READS = (
    say.GetColumns,
    say.GetLog,
    say.GetOutput,
    say.GetStacks,
    say.GetImportance,
    say.GetCurves,
    say.GetTrial,
    say.GetHistory,
    say.GetClusterLog,
    say.CompareRuns,
)
"""Requests that change nothing."""

Notify = Callable[[say.Progress], None]


class Requests:
    """Used on the server's loop; what waits for a disk or a process goes to a thread."""

    def __init__(self, links: Links, folds: Folds, on_change: Callable[[], None]) -> None:
        self._links = links
        self._folds = folds
        self._on_change = on_change

    async def answer(self, body: say.FromBrowser, notify: Notify) -> Answer:
        """The answer to one request that has one.

        Parameters
        ----------
        notify : callable
            Gets the steps of a long request, on the loop.
        """
        number = getattr(body, "id", 0)
        try:
            return await self._answer(body, notify)
        except JupyterDDLError as error:
            return say.Denied(number, error.code, error.message)
        except OSError as error:
            text = trouble_of("the Jupyter server can't do this now", error)
            return say.Denied(number, StorageError.code, text)
        finally:
            if not isinstance(body, _READS):
                self._on_change()

    async def _answer(self, body: say.FromBrowser, notify: Notify) -> Answer:
        match body:
            case say.StopRun() | say.StopTrial():
                request, told = stop_of(body)
                await self._ask_of_run(body.run_id, request)
                return told
            case say.GetColumns():
                kept = await asyncio.to_thread(columns_kept, body)
                return kept or await self._poll(body.run_id, lambda s: read_of(s, body))
            case say.GetLog() | say.GetOutput() | say.GetStacks():
                return await self._poll(body.run_id, lambda s: read_of(s, body))
            case say.GetImportance() | say.GetCurves() | say.GetTrial() | say.GetHistory():
                return await asyncio.to_thread(self._analysed, body)
            case say.ResumeRun():
                return await self._resume(body, notify)
            case say.CompareRuns():
                run_ids = (body.run_id, *body.others)
                if not 2 <= len(run_ids) <= MAX_COMPARED:
                    raise ProtocolError(
                        f"comparing {len(run_ids)} runs failed: give 2 to {MAX_COMPARED}"
                    )
                for run_id in run_ids:
                    check_run(run_id)
                drawn = await asyncio.to_thread(compare_runs, *run_ids, has_curves=False)
                return say.ComparedPart(body.id, drawn._repr_html_())
            case say.DeleteRun():
                check_run(body.run_id)
                notices: list[str] = []
                await asyncio.to_thread(remove_run, body.run_id, notices.append)
                self._folds.forget(body.run_id)
                return say.Done(body.id, "; ".join((f"run {body.run_id} is deleted", *notices)))
            case say.WriteTensorboard():
                check_run(body.run_id)
                directory = await asyncio.to_thread(lambda: Run(body.run_id).tensorboard())
                return say.Done(body.id, str(directory))
            case say.UseCluster():
                await self._links.get(body.cluster)
                await asyncio.to_thread(choose_cluster, body.cluster)
                return say.Done(body.id, f"new notebooks use cluster {body.cluster}")
            case say.StartCluster():
                return await self._start(body, notify)
            case say.ScaleCluster():
                await self._links.ask(body.cluster, down.Scale(body.n_workers))
                return say.Done(body.id, f"{body.n_workers} workers are wanted")
            case say.StopCluster():
                return await self._stop(body)
            case say.GetClusterLog():
                return await self._cluster_log(body)
            case _:
                raise ProtocolError(f"{type(body).__name__} can't be answered here")

    async def _poll(self, run_id: str, read: Callable[[RunState], Answer]) -> Answer:
        return await asyncio.to_thread(self._folds.poll, run_id, read)

    def _analysed(self, body: Analysis) -> Answer:
        # What takes long is done while others may look at the run.
        return self._folds.poll(body.run_id, lambda state: analysis_of(state, body))()

    async def _ask_of_run(self, run_id: str, request: down.Body) -> None:
        cluster = await asyncio.to_thread(self._folds.poll, run_id, cluster_of)
        running = [info.name for info in await self._links.running()]
        if cluster not in running:
            raise ControllerError(
                f"nothing drives run {run_id}: cluster {cluster} is not running; "
                f"start it, and its unfinished runs go on"
            )
        try:
            await self._links.ask(cluster, request)
        except RunNotFoundError:
            # A run may end in this very moment, as it was to; nobody has stopped its trial.
            stops_run = isinstance(request, down.StopRunRequest)
            if not stops_run or not await asyncio.to_thread(self._folds.poll, run_id, _has_ended):
                raise

    async def _resume(self, body: say.ResumeRun, notify: Notify) -> say.Done:
        check_run(body.run_id)
        on_phase = _progress(body.id, notify)
        return say.Done(body.id, await asyncio.to_thread(go_on_with, body.run_id, on_phase))

    async def _start(self, body: say.StartCluster, notify: Notify) -> say.Done:
        spec = await asyncio.to_thread(_spec, body)
        # A session of its own: the process's would let one start wait for another.
        session = Session()
        await asyncio.to_thread(session.start, spec, _progress(body.id, notify))
        resumed = f"; it goes on with {', '.join(session.resumed)}" if session.resumed else ""
        return say.Done(body.id, f"cluster {spec.name} is ready{resumed}")

    async def _stop(self, body: say.StopCluster) -> say.Done:
        infos = {info.name: info for info in await self._links.running()}
        try:
            await self._links.ask(body.cluster, down.StopCluster(), _STOP_TIMEOUT_S)
        except ControllerError:
            # It hangs, or ended just now.  Nothing outlives a controller that is killed.
            info = infos.get(body.cluster)
            if info is not None:
                await asyncio.to_thread(end_process, info.process, _STOP_GRACE_S)
                if backend_plugin(info.backend).has_controller_host:  # that was not the controller
                    await asyncio.to_thread(delete_named, info.backend, body.cluster)
        return say.Done(body.id, f"cluster {body.cluster} ends")

    async def _cluster_log(self, body: say.GetClusterLog) -> say.ClusterLogPart:
        n_lines = max(1, min(body.n_lines, MAX_LINES))
        n_asked = 10_000 if body.contains or not body.with_foreign else n_lines
        result = await self._links.ask(body.cluster, down.GetLog(body.worker, n_asked))
        text = result.text if isinstance(result, LogText) else ""
        own, n_foreign = (text.splitlines(), 0) if body.with_foreign else _own_lines(text)
        lines = await asyncio.to_thread(_log_lines, own, body.contains, n_lines)
        return say.ClusterLogPart(body.id, body.cluster, lines, n_foreign)


def _progress(request: int, notify: Notify) -> Callable[[str], None]:
    """Tells from another thread how far a request has come."""
    loop = asyncio.get_running_loop()

    def on_phase(text: str) -> None:
        loop.call_soon_threadsafe(notify, say.Progress(request, text))

    return on_phase


def _has_ended(state: RunState) -> bool:
    return state.end is not None


def _spec(body: say.StartCluster) -> ClusterSpec:
    """What the form asks for; sizes are checked where every start is checked."""
    spec = cluster_spec(
        body.backend,
        body.n_workers,
        name=body.name,
        cpus=body.cpus_per_worker,
        memory_bytes=body.memory_per_worker_bytes,
        idle_timeout_s=body.idle_timeout_s,
        max_age_s=body.max_age_s,
        **own_options(body.backend, body.options),
    )
    return msgspec.structs.replace(spec, prewarm=packages_to_warm(if_installed=True))


_RECORD = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+ \w+ ([\w.]+): ")
_OWN = __name__.partition(".")[0]


def _own_lines(text: str) -> tuple[list[str], int]:
    """Lines of this package, with what follows a record of it, and how many others there are.

    What stands before the first record, or was printed, is its own.
    """
    own: list[str] = []
    is_own, n_foreign = True, 0
    for line in text.splitlines():
        record = _RECORD.match(line)
        if record is not None:
            is_own = record[1].partition(".")[0] == _OWN
        if is_own:
            own.append(line)
        else:
            n_foreign += 1
    return own, n_foreign


def _log_lines(text: list[str], contains: str, n_lines: int) -> tuple[str, ...]:
    wanted = contains.casefold()
    found = [line for line in text if wanted in line.casefold()][-n_lines:]
    left = _LOG_BYTES
    kept: list[str] = []
    for line in reversed(found):
        cleaned = plain_lines(line, _MAX_TEXT).replace("\n", " ")
        left -= len(cleaned.encode()) + 8
        if left < 0:
            break
        kept.append(cleaned)
    return tuple(reversed(kept))
