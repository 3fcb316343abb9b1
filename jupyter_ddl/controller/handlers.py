"""What each request does.  One handler object per controller."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from jupyter_ddl.controller.server import Session
from jupyter_ddl.controller.service import ClusterService
from jupyter_ddl.controller.stored import StoredRuns
from jupyter_ddl.errors import ProtocolError, SpecError
from jupyter_ddl.protocol import mirroring as mirror
from jupyter_ddl.protocol import requests as ask
from jupyter_ddl.protocol.cluster import MAX_WORKERS
from jupyter_ddl.protocol.mirroring import (
    BringBlob,
    BringRunFile,
    CopyState,
    HandedOver,
    HandOver,
    SettleRuns,
)
from jupyter_ddl.protocol.replies import (
    Accepted,
    DaskAccess,
    LogText,
    Result,
    SnapshotResult,
    StatusResult,
    TelemetryResult,
)
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.protocol.telemetry import EncodedTelemetry
from jupyter_ddl.store.awake import awake_s

__all__ = ["Requests", "dask_access"]


# What opens the scheduler to the user's own Dask code.
#
# It leaves the controller over its socket, whose other end is the same user (0600, peer's uid
# checked), and lies on no disk.


def dask_access(client: Any) -> DaskAccess:
    """Address and temporary certificate of the scheduler that ``client`` is connected to."""
    security = client.security
    address = client.scheduler.address
    if address.startswith("gateway://"):  # one certificate, which has signed itself
        return DaskAccess(address, security.tls_cert, security.tls_cert, security.tls_key)
    return DaskAccess(
        address=address,
        ca=security.tls_ca_file or "",
        certificate=security.tls_client_cert or "",
        key=security.tls_client_key or "",
    )


_LOOKS = (
    ask.Hello,
    ask.GetStatus,
    ask.GetTelemetry,
    ask.UnwatchRun,
    mirror.ListRuns,
    mirror.ListRunFiles,
    mirror.ReadRunFile,
    mirror.FindBlobs,
    mirror.ReadBlob,
)
"""No use of the cluster: a panel that is open all night, or a mirror, must not keep it alive."""


class Requests:
    """Answers clients; changes go through the service that owns cluster and runs."""

    def __init__(
        self, service: ClusterService, log_file: Path, stop: Callable[[str], None]
    ) -> None:
        self._service = service
        self._log_file = log_file
        self._stop = stop
        self._stored = StoredRuns(lambda: service.runs.driven | service.groups.driven)

    async def handle(self, body: ask.Body, session: Session) -> Result:
        """The result of one request; raises :class:`JupyterDDLError` for a refusal."""
        if not isinstance(body, _LOOKS):
            self._service.lease.touch(awake_s())
        match body:
            case ask.Hello():
                return self._hello(body)
            case ask.GetStatus():
                return StatusResult(self._service.status())
            case ask.SubmitRun(spec=spec):
                await self._service.runs.submit(self._with_image(spec))
                self._service.environment.note(spec.provenance.environment)
                return Accepted(run_id=spec.run_id)
            case ask.ResumeRun(run_id=run_id, budget=budget):
                await self._service.runs.resume(run_id, budget)
                return Accepted(run_id=run_id)
            case ask.WatchRun(run_id=run_id):
                if session.is_closed:  # asked with its last breath: nobody would leave again
                    return Accepted(run_id=run_id)
                return SnapshotResult(self._service.runs.watch(run_id, session))
            case ask.UnwatchRun(run_id=run_id):
                self._service.runs.unwatch(session, run_id)
                return Accepted(run_id=run_id)
            case ask.StopRunRequest(run_id=run_id) if run_id in self._service.groups.active:
                await self._service.groups.close_group(run_id, "it was stopped (%runs stop)")
                return Accepted(run_id=run_id)
            case ask.StopRunRequest(run_id=run_id, when=when):
                self._service.runs.stoppable(run_id).stop(when, by="user")
                return Accepted(run_id=run_id)
            case ask.StopTrialRequest():
                return self._stop_trial(body)
            case ask.Scale(n_workers=n_workers):
                self._service.size.check_scalable()
                _check_workers(n_workers)
                self._service.size.bounds = None
                await self._service.size.scale(n_workers)
                return StatusResult(self._service.status())
            case ask.Adapt(minimum=minimum, maximum=maximum):
                return self._adapt(minimum, maximum)
            case ask.GetLog(worker=worker, n_lines=n_lines):
                return LogText(await asyncio.to_thread(_tail, self._log_file, worker, n_lines))
            case ask.GetTelemetry(run_id=run_id):
                view = msgspec.json.encode(self._service.telemetry.view(run_id))
                return TelemetryResult(EncodedTelemetry(self._service.spec.name, run_id, view))
            case ask.GetEnvironment() | ask.SyncEnvironment() | ask.TellVerdict():
                return await self._service.environment.answer(body)
            case ask.FeedFit() | ask.TakeFit() | ask.FinishFit() | ask.TellFit():
                return await self._service.runs.ask_fit(body) or Accepted(run_id=body.run_id)
            case ask.ListFiles(run_id=run_id):
                return await self._service.written.found(run_id)
            case ask.FetchFile():
                await self._service.written.fetch(body)
                return Accepted(run_id=body.run_id)
            case ask.GetDask():
                return dask_access(self._service.backend.client)
            case BringRunFile() | BringBlob():
                return CopyState(0, 0, is_over=True)  # what there is lies on this host
            case HandOver():
                return HandedOver()  # it sees this host's blobs
            case SettleRuns():
                await self._service.settle()
                return Accepted()
            case ask.StopCluster():
                self._stop("a client asked for it")
                return Accepted()
            case ask.OpenGroup() | ask.ExecuteCell() | ask.PollCell():
                return await self._of_group(body)
            case ask.InterruptCell() | ask.CloseGroup():
                return await self._of_group(body)
            case _:
                return await self._stored.answer(body, session)

    def _with_image(self, spec: RunSpec) -> RunSpec:
        """As it is recorded: the kernel does not know what its workers' image was resolved to."""
        origin = msgspec.structs.replace(spec.provenance, image=self._service.backend.image)
        return msgspec.structs.replace(spec, provenance=origin)

    async def _of_group(self, body: ask.GroupBody) -> Result:
        groups = self._service.groups
        match body:
            case ask.OpenGroup():
                spec = self._with_image(body.spec)
                return await groups.open(msgspec.structs.replace(body, spec=spec))
            case ask.ExecuteCell():
                return await groups.execute(body)
            case ask.PollCell(group_id=group_id):
                return groups.progress(group_id)
            case ask.InterruptCell(group_id=group_id):
                await groups.interrupt(group_id)
            case ask.CloseGroup(group_id=group_id, why=why):
                await groups.close_group(group_id, why)
        return Accepted()

    def closed(self, session: Session) -> None:
        self._service.runs.unwatch(session)
        self._stored.closed(session)

    def _hello(self, body: ask.Hello) -> Result:
        if body.version != ask.PROTOCOL_VERSION:
            raise ProtocolError(
                f"this client speaks protocol {body.version}, the controller "
                f"{ask.PROTOCOL_VERSION}; stop it with the version that started it"
            )
        return StatusResult(self._service.status())

    def _adapt(self, minimum: int, maximum: int) -> Result:
        if not 0 <= minimum <= maximum:
            raise SpecError(f"adapt got {minimum} {maximum}; expected 0 <= MIN <= MAX")
        self._service.size.check_scalable()
        _check_workers(maximum)
        self._service.size.bounds = (minimum, maximum)
        return StatusResult(self._service.status())

    def _stop_trial(self, body: ask.StopTrialRequest) -> Result:
        driver = self._service.runs.stoppable(body.run_id)
        if not driver.stop_trial(body.trial, body.when, by="user"):
            raise SpecError(f"trial {body.trial} of run {body.run_id} is not running")
        return Accepted(run_id=body.run_id)


def _check_workers(n_workers: int) -> None:
    if not 0 <= n_workers <= MAX_WORKERS:
        raise SpecError(f"{n_workers} workers were asked for; expected 0 to {MAX_WORKERS}")


def _tail(path: Path, worker: str | None, n_lines: int) -> str:
    with path.open(errors="replace") as file:
        lines = (line for line in file if worker is None or worker in line)
        return "".join(deque(lines, maxlen=max(1, min(n_lines, 10_000))))
