"""Sends assignments to workers as Dask futures and brings their events back, complete.

One dispatcher per controller.  It owns the only subscription to the controller's Dask topic (a
second subscriber of a topic would replace the first) and knows which worker holds what.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from distributed import Client

from jupyter_ddl.driving.calls import WorkerLostError, call_worker, decoded, hear
from jupyter_ddl.driving.file_sync import AssignmentFiles, FileTransfer, OnEvents, needed_blobs
from jupyter_ddl.driving.flights import ChunkInbox
from jupyter_ddl.protocol.assignment import Assignment, Control, StopRun, StopTrial
from jupyter_ddl.protocol.events import AssignmentResult, EventChunk
from jupyter_ddl.protocol.group import JoinGroup, MembersChanged
from jupyter_ddl.protocol.reading import msgpack_decoder
from jupyter_ddl.protocol.sampling import SamplerAnswers, SamplerCall
from jupyter_ddl.worker import plugin as plugin_calls

__all__ = ["Dispatcher", "WorkerLostError"]

log = logging.getLogger(__name__)

_LATE_CHUNK_S = 1.0
"""How long a chunk may come behind its assignment's result before it is asked for again."""
_CONTROL_TIMEOUT_S = 40.0
"""About as long as a stopped run waits for its workers; for all tries together."""
_CONTROL_TRIES = 4
_CONTROL_AGAIN_S = 0.5
_REPLAY_TIMEOUT_S = 30.0
_HOLDS_TIMEOUT_S = 20.0
_END_TIMEOUT_S = 20.0


class _Flight:
    """An assignment on its way."""

    def __init__(self, worker: str, on_events: OnEvents) -> None:
        self.worker = worker
        self.on_events = on_events
        self.inbox = ChunkInbox()
        self.is_sent = False
        """Whether it is the worker's turn; before and behind that its files are carried."""
        self.progress = asyncio.Event()
        self.lost = asyncio.Event()


class Dispatcher:
    """Assignments down, events up.  Used on the controller's loop only.

    Parameters
    ----------
    transfer : FileTransfer, optional
        For workers that do not share the controller's files.
    is_there : callable
        Whether the cluster has a worker, by its address.
    owns_workers : bool
        Whether a worker may be ended.
    """

    def __init__(
        self,
        client: Client,
        topic: str,
        transfer: FileTransfer | None = None,
        is_there: Callable[[str], bool] = lambda _: True,
        *,
        owns_workers: bool = True,
    ) -> None:
        self._owns_workers = owns_workers
        self._client = client
        self.topic = topic
        self._transfer = transfer
        self._is_there = is_there
        self._flights: dict[str, _Flight] = {}
        self._ending: dict[str, asyncio.Task[None]] = {}
        """Workers that are being ended: a second restart would meet the one in its place."""
        self._decoder = msgpack_decoder(EventChunk)
        self._of_result = msgpack_decoder(AssignmentResult)
        self._of_sampler = msgpack_decoder(SamplerAnswers)

    def start(self) -> None:
        """Subscribe to the controller's topic; call once, before any assignment."""
        hear(self._client, self.topic, self._on_message)

    def reconnect(self, client: Client) -> None:
        """Use another scheduler from now on: what was on its way at the old one is lost."""
        self._client = client
        for flight in self._flights.values():
            flight.lost.set()
        self.start()

    async def execute(self, assignment: Assignment, worker: str, on_events: OnEvents) -> None:
        """Run one assignment on one worker; returns when all its events were delivered.

        Raises
        ------
        WorkerLostError
            The worker was removed from the cluster, or can't be asked for lost events.
        """
        if not self._is_there(worker):
            # Lost between the choice of the place and now: nobody would tell of it a second time.
            raise WorkerLostError(f"worker {worker} is gone")
        files = None
        if self._transfer is not None:
            files = AssignmentFiles(self._transfer, assignment, worker, on_events)
            on_events = files.add
        flight = _Flight(worker, on_events)
        self._flights[assignment.assignment_id] = flight
        work = asyncio.create_task(self._work(assignment, flight, files))
        lost = asyncio.create_task(flight.lost.wait())
        try:
            await asyncio.wait({work, lost}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done() or work.cancelled():  # Dask's own futures can be cancelled
                raise WorkerLostError(f"worker {worker} is gone")
            work.result()
        finally:
            del self._flights[assignment.assignment_id]
            work.cancel()
            lost.cancel()
            await asyncio.gather(work, lost, return_exceptions=True)
            if files is not None:
                await files.close()

    async def _work(
        self, assignment: Assignment, flight: _Flight, files: AssignmentFiles | None
    ) -> None:
        if files is not None:
            await files.begin()
        future = self._submit(assignment, flight.worker)
        flight.is_sent = True
        try:
            await self._events_of(assignment.assignment_id, future, flight)
        finally:
            flight.is_sent = False
            # The scheduler forgets the task: its history lives in the ledger.
            future.release()
        if files is not None:
            await files.finish()

    async def holds(self, assignment_id: str) -> bool:
        """Whether an assignment goes on: its worker says so, or its files are being carried.

        Raises
        ------
        WorkerLostError
            The worker does not answer.
        """
        flight = self._flights.get(assignment_id)
        if flight is None or not flight.is_sent:
            return True  # what carries files has deadlines of its own
        is_held: bool = await self._call(
            flight.worker,
            plugin_calls.holds,
            assignment_id,
            gives=bool,
            timeout_s=_HOLDS_TIMEOUT_S,
        )
        return is_held

    async def end_worker(self, worker: str) -> None:
        """End a worker that does not do its work, as Dask ends one that is silent; if it is ours.

        Its nanny starts another one, or whatever has started it.  A caller that is cancelled
        leaves it to be ended all the same.
        """
        is_lost = self._client.scheduler is None
        if is_lost or not self._owns_workers or not self._is_there(worker):
            return
        if worker not in self._ending:
            self._ending[worker] = asyncio.create_task(self._end_worker(worker))
        await asyncio.shield(self._ending[worker])

    async def _end_worker(self, worker: str) -> None:
        log.warning("worker %s does not do what it was sent for: it is ended", worker)
        try:
            async with asyncio.timeout(2 * _END_TIMEOUT_S):
                await self._client.scheduler.restart_workers(
                    workers=[worker],
                    timeout=_END_TIMEOUT_S,
                    wait_for_workers=False,
                    on_error="return",
                    stimulus_id=f"jupyter-ddl-lease-{worker}",
                )
        except (OSError, TimeoutError) as error:
            log.error("worker %s is not ended: %r", worker, error)
        finally:
            del self._ending[worker]

    async def control(self, worker: str, control: Control) -> None:
        """Deliver a signal to a worker's ranks; a worker that is gone needs none.

        What somebody waits for is sent again to one that does not answer: twice does no harm.
        """
        payload, name = msgspec.msgpack.encode(control), type(control).__name__
        n_tries = _CONTROL_TRIES if _is_waited_for(control) else 1
        for n_left in reversed(range(n_tries)):
            try:
                await self._call(
                    worker,
                    plugin_calls.control,
                    payload,
                    gives=None,
                    timeout_s=_CONTROL_TIMEOUT_S / n_tries,
                )
                return
            except WorkerLostError as error:
                log.info("%s is not delivered: %s", name, error.message)
            if not n_left or not self._is_there(worker):
                return
            await asyncio.sleep(_CONTROL_AGAIN_S)

    async def ask_sampler(self, worker: str, call: SamplerCall) -> SamplerAnswers:
        """Pass requests to the sampler process of a run.

        Raises
        ------
        WorkerLostError
            The worker is gone, or did not answer in time.
        """
        payload = msgspec.msgpack.encode(call)
        if self._transfer is not None:
            dirs = tuple(Path(directory) for directory in call.blob_dirs)
            digests = needed_blobs(call.program, dirs)
            await self._transfer.send_blobs(worker, call.run_id, call.run_id, digests, dirs)
        timeout_s = call.timeout_s + _CONTROL_TIMEOUT_S
        answer = await self._call(
            worker, plugin_calls.ask_sampler, payload, gives=bytes, timeout_s=timeout_s
        )
        return decoded(worker, answer, self._of_sampler)

    def worker_removed(self, address: str) -> None:
        """Fail what is on its way at a worker that the scheduler has removed."""
        if self._transfer is not None:
            self._transfer.worker_removed(address)
        for flight in self._flights.values():
            if flight.worker == address:
                flight.lost.set()

    def _submit(self, assignment: Assignment, worker: str) -> Any:
        return self._client.submit(
            plugin_calls.execute_assignment,
            msgspec.msgpack.encode(assignment),
            key=plugin_calls.task_key(assignment.assignment_id),
            workers=[worker],
            allow_other_workers=False,
            pure=False,
            retries=0,
        )

    async def _events_of(self, assignment_id: str, future: Any, flight: _Flight) -> None:
        """Wait for the result, and for every event that it counts."""
        try:
            encoded = await future.result()
        except Exception as error:  # the worker has no plugin, Dask lost the task, …
            raise WorkerLostError(f"Dask gave up on {flight.worker}: {error!r}") from error
        result = decoded(flight.worker, encoded, self._of_result)
        await self._complete(assignment_id, result.n_chunks, flight)

    async def _complete(self, assignment_id: str, n_chunks: int, flight: _Flight) -> None:
        try:
            async with asyncio.timeout(_LATE_CHUNK_S):
                while flight.inbox.missing(n_chunks):
                    flight.progress.clear()
                    await flight.progress.wait()
        except TimeoutError:
            await self._replay(assignment_id, n_chunks, flight)

    async def _replay(self, assignment_id: str, n_chunks: int, flight: _Flight) -> None:
        first = flight.inbox.next_number
        log.warning("assignment %s: chunks from %d lost, asking again", assignment_id, first)
        chunks = await self._call(
            flight.worker,
            plugin_calls.replay,
            assignment_id,
            first,
            gives=list[bytes],
            timeout_s=_REPLAY_TIMEOUT_S,
        )
        for encoded in chunks:
            self._deliver(decoded(flight.worker, encoded, self._decoder))
        if flight.inbox.missing(n_chunks):
            raise WorkerLostError(f"worker {flight.worker} no longer has the events of its trials")

    async def _call(
        self,
        worker: str,
        function: Callable[..., Any],
        *args: Any,
        gives: Any,
        timeout_s: float,
    ) -> Any:
        return await call_worker(
            self._client, worker, function, *args, gives=gives, timeout_s=timeout_s
        )

    def _on_message(self, chunk: bytes) -> None:
        try:
            self._deliver(decoded("of this cluster", chunk, self._decoder))
        except WorkerLostError as error:  # whose it is shows when the chunk is asked for again
            log.warning("a chunk of events is left out: %s", error.message)

    def _deliver(self, chunk: EventChunk) -> None:
        flight = self._flights.get(chunk.assignment_id)
        if flight is None:
            return  # a late message of an assignment that was given up: fenced off here
        events = flight.inbox.add(chunk)
        if events:
            flight.on_events(events)
        flight.progress.set()


def _is_waited_for(control: Control) -> bool:
    """Whether a run or a round stands still until this has arrived."""
    if isinstance(control, StopRun):
        return not control.is_over
    return isinstance(control, StopTrial | JoinGroup | MembersChanged)
