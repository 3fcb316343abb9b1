"""Carries out what the machine of the persistent groups decides, and answers who asks."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from jupyter_ddl.background import BackgroundTasks
from jupyter_ddl.driving.cell_groups import CellGroups
from jupyter_ddl.driving.group_events import (
    AllCloseWanted,
    AskGpus,
    Call,
    CellWanted,
    CloseRecord,
    CloseWanted,
    Forget,
    GpusKnown,
    GroupEvent,
    GroupInstruction,
    InterruptWanted,
    OpenRecord,
    OpenWanted,
    RankAnswered,
    RankSilent,
    RecordCell,
    RecordClosed,
    RecordOpened,
    RecordRefused,
)
from jupyter_ddl.driving.group_record import GroupRecord
from jupyter_ddl.driving.machine import Refuse, Reply, WaitUntil, WakeOthers, Woken
from jupyter_ddl.driving.rank_calls import RankCalls
from jupyter_ddl.driving.shell import Deadline, read_clocks
from jupyter_ddl.errors import JupyterDDLError, LaunchError
from jupyter_ddl.placement.slots import SlotBook
from jupyter_ddl.protocol.cells import CellResult
from jupyter_ddl.protocol.replies import GroupResult, GroupStatus
from jupyter_ddl.protocol.requests import ExecuteCell, OpenGroup
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.store.paths import blob_dirs

__all__ = ["GroupRegistry"]

log = logging.getLogger(__name__)


class GroupRegistry:
    """The persistent groups of one controller.  Used on its loop only.

    Parameters
    ----------
    host_of : callable
        Address of a worker's host.
    on_free : callable
        Called when slots have become free.
    gpus_known : callable
        Waits until the workers have told of their GPUs.
    """

    def __init__(
        self,
        slots: SlotBook,
        calls: RankCalls,
        *,
        host_of: Callable[[str], str],
        on_free: Callable[[], None],
        gpus_known: Callable[[], Awaitable[None]],
    ) -> None:
        directories = tuple(str(path) for path in blob_dirs())
        self._machine = CellGroups(slots, directories, host_of, lambda: secrets.token_hex(16))
        self._calls = calls
        self._on_free = on_free
        self._gpus_known = gpus_known
        self._events: deque[GroupEvent] = deque()
        self._is_handling = False
        self._requests: dict[int, asyncio.Future[Any]] = {}
        self._n_requests = 0
        self._records: dict[str, GroupRecord] = {}  # by group
        self._asking: dict[int, asyncio.Task[None]] = {}  # by call
        self._tasks = BackgroundTasks(log, "persistent groups")
        self._deadline = Deadline(partial(self._feed, Woken()))

    # -- what clients ask ------------------------------------------------------------------------

    @property
    def active(self) -> tuple[str, ...]:
        """Ids of the groups that are open."""
        return self._machine.active

    @property
    def driven(self) -> dict[str, int]:
        """Committed bytes of the ledgers that are written here, by group."""
        return {group_id: record.ledger_bytes for group_id, record in self._records.items()}

    @property
    def n_busy(self) -> int:
        """Groups that execute a cell."""
        return self._machine.n_busy

    def status(self) -> tuple[GroupStatus, ...]:
        return self._machine.status()

    def tell(self, group_id: str, text: str) -> None:
        """Have the record of a group say something; there may be no such group."""
        if (record := self._records.get(group_id)) is not None:
            record.tell(text)

    async def open(self, request: OpenGroup) -> GroupResult:
        """The group of a name: the open one, or a new one.

        Raises
        ------
        PlacementError
            Its ranks do not fit, or the open group has another size.
        LaunchError
            A rank could not be started.
        """
        result: GroupResult = await self._ask(
            lambda number: OpenWanted(number, request.spec, request.reset)
        )
        return result

    async def execute(self, request: ExecuteCell) -> CellResult:
        """Execute a cell on an open group; returns when it has ended on all of its ranks.

        Raises
        ------
        SpecError
            There is no such rank, or another cell is being executed.
        GroupLostError
            The group has ended, before or meanwhile.
        """
        result: CellResult = await self._ask(
            lambda number: CellWanted(number, request.group_id, request.cell, request.targets)
        )
        return result

    def progress(self, group_id: str) -> CellResult:
        """The cell that a group executes, as far as it is.  Raises as :meth:`execute` does."""
        return self._machine.progress(group_id)

    async def interrupt(self, group_id: str) -> None:
        """Raise ``KeyboardInterrupt`` in the cell that a group executes."""
        await self._ask(lambda number: InterruptWanted(number, group_id))

    async def close_group(self, group_id: str, why: str) -> None:
        """End a group; no-op for one that has ended."""
        await self._ask(lambda number: CloseWanted(number, group_id, why))

    async def close(self, why: str = "") -> None:
        """End all groups, with the cluster.

        Parameters
        ----------
        why : str
            Why that ends, as their records are to say.
        """
        reason = f"the cluster ended: {why}" if why else "the cluster ended"
        await self._ask(lambda number: AllCloseWanted(number, reason))
        self._deadline.set(None)
        await self._tasks.close()

    async def _ask(self, make: Callable[[int], GroupEvent]) -> Any:
        self._n_requests += 1
        future = asyncio.get_running_loop().create_future()
        self._requests[self._n_requests] = future
        self._feed(make(self._n_requests))
        return await future

    # -- the machine -----------------------------------------------------------------------------

    def _feed(self, event: GroupEvent) -> None:
        """Tell the machine, once it has done with what it was told before."""
        self._events.append(event)
        if self._is_handling:
            return
        self._is_handling = True
        try:
            while self._events:
                for instruction in self._machine.handle(self._events.popleft(), read_clocks()):
                    self._carry_out(instruction)
        except Exception as error:  # whoever feeds has nothing to do with it
            log.exception("the persistent groups have failed")
            for future in self._requests.values():
                if not future.done():
                    future.set_exception(error)
        finally:
            self._is_handling = False

    def _carry_out(self, instruction: GroupInstruction) -> None:
        match instruction:
            case Call(call=call):
                task = self._asking[call] = self._tasks.start(self._call(instruction))
                task.add_done_callback(lambda _: self._asking.pop(call, None))
            case Forget(calls=calls):
                for call in calls:
                    if (asking := self._asking.get(call)) is not None:
                        asking.cancel()
            case AskGpus(group_id=group_id):
                self._tasks.start(self._ask_gpus(group_id))
            case OpenRecord(spec=spec, n_slots=n_slots):
                self._open_record(spec, n_slots)
            case RecordCell(group_id=group_id, event=event):
                self._records[group_id].put(event)
            case CloseRecord():
                self._tasks.start(self._close_record(instruction))
            case Reply(request=request, result=result):
                future = self._requests.pop(request)
                if not future.done():  # it is, where the one who asked has gone
                    future.set_result(result)
            case Refuse(request=request, error=error):
                future = self._requests.pop(request)
                if not future.done():
                    future.set_exception(error)
            case WaitUntil(at_s=at_s):
                self._deadline.set(at_s)
            case WakeOthers():
                self._on_free()

    async def _call(self, call: Call) -> None:
        try:
            answer = await self._calls.call(call.worker, call.body, call.timeout_s)
        except JupyterDDLError as error:
            self._feed(RankSilent(call.call, error))
        except Exception as error:  # whatever is wrong with the way, nobody may wait forever
            log.exception("%s of worker %s failed", type(call.body).__name__, call.worker)
            self._feed(RankSilent(call.call, LaunchError(repr(error))))
        else:
            self._feed(RankAnswered(call.call, answer))

    async def _ask_gpus(self, group_id: str) -> None:
        try:
            await self._gpus_known()
        finally:
            self._feed(GpusKnown(group_id))

    def _open_record(self, spec: RunSpec, n_slots: int) -> None:
        try:
            record = self._records[spec.run_id] = GroupRecord(spec, n_slots)
        except JupyterDDLError as error:
            self._feed(RecordRefused(spec.run_id, error))
        except OSError as error:
            text = f"the record of the group can't be written: {error}"
            self._feed(RecordRefused(spec.run_id, LaunchError(text)))
        else:
            self._feed(RecordOpened(spec.run_id, str(record.directory)))

    async def _close_record(self, end: CloseRecord) -> None:
        log.info("group %s has ended: %s", end.group_id, end.reason)
        try:
            await self._records.pop(end.group_id).close(end.state, end.reason)
        finally:
            self._feed(RecordClosed(end.group_id))
