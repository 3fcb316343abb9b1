"""Waits for a cell on a persistent group: output as it comes, interrupts passed on."""

from __future__ import annotations

import concurrent.futures
import time
from collections.abc import Callable
from typing import Any

from jupyter_ddl.client.rank_text import RankLogs
from jupyter_ddl.client.session import Session
from jupyter_ddl.client.waiting import IsLeaving
from jupyter_ddl.errors import (
    ClusterError,
    ControllerError,
    GroupLostError,
    JupyterDDLError,
    ProtocolError,
)
from jupyter_ddl.events.cell_results import CellResult
from jupyter_ddl.events.replies import Result
from jupyter_ddl.spec.requests import CloseGroup, ExecuteCell, InterruptCell, LookAtCell

__all__ = ["CellWait", "OnProgress"]

_POLL_S = 0.1
_LOOK_S = 0.5
"""How often the controller is asked which ranks are done, in a cell that takes longer."""
_ASK_TIMEOUT_S = 10.0

OnProgress = Callable[[dict[int, str], CellResult | None], Any]
"""Takes the output by rank, and which ranks are done (None: not known yet)."""


class CellWait:
    """One execution; used on one thread.

    Parameters
    ----------
    is_leaving
        Asked at the first interrupt; when true, it ends the wait and not the cell.
    """

    def __init__(
        self,
        session: Session,
        cluster: str,
        request: ExecuteCell,
        logs: RankLogs,
        is_leaving: IsLeaving = lambda: False,
    ) -> None:
        self._session = session
        self._cluster = cluster
        self._request = request
        self._logs = logs
        self._is_leaving = is_leaving
        self._n_interrupts = 0
        self._texts: dict[int, str] = {}
        self._seen: CellResult | None = None
        self._looked_s = time.monotonic()

    def run(self, on_progress: OnProgress | None) -> CellResult:
        """Execute the cell.  The first interrupt ends it, the second the group.

        Parameters
        ----------
        on_progress
            Called at most ten times a second while the cell runs, when there is something new.

        Raises
        ------
        GroupLostError
            The group has ended; its variables are gone.
        KeyboardInterrupt
            The third interrupt, or the first of a wait that leaves: nobody waits any more.
        """
        try:
            future = self._session.begin(self._cluster, self._request)
        except ClusterError as error:
            raise self._lost() from error
        while True:
            try:
                done = concurrent.futures.wait([future], timeout=_POLL_S).done
                if done:
                    return self._result(future)
                self._tell(on_progress)
            except KeyboardInterrupt:
                self._interrupted()

    def _result(self, future: concurrent.futures.Future[Result]) -> CellResult:
        try:
            result = future.result()
        except ControllerError as error:
            raise self._lost() from error
        if isinstance(result, CellResult):
            return result
        raise ProtocolError(f"the controller answered {type(result).__name__} to a cell")

    def _lost(self) -> GroupLostError:
        return GroupLostError(
            f"group {self._request.group_id} has ended with its cluster {self._cluster}; its "
            f"variables are gone, and the next cell starts a new group",
            group_id=self._request.group_id,
        )

    def _tell(self, on_progress: OnProgress | None) -> None:
        if on_progress is None:
            return
        texts, looked = self._logs.poll(), self._look()
        if texts is not None:
            self._texts = texts
        if texts is not None or looked:
            on_progress(self._texts, self._seen)

    def _look(self) -> bool:
        """Learn which ranks are done; whether that has changed."""
        if time.monotonic() - self._looked_s < _LOOK_S:
            return False
        try:
            answer = self._ask(LookAtCell(self._request.group_id))
        except JupyterDDLError:
            return False  # the answer to the cell itself tells why
        self._looked_s = time.monotonic()
        before, self._seen = self._seen, answer if isinstance(answer, CellResult) else None
        return self._seen is not None and (before is None or before.waiting != self._seen.waiting)

    def _interrupted(self) -> None:
        """Pass one interrupt on, and those that come while it is passed on."""
        while True:
            self._n_interrupts += 1
            if self._n_interrupts > 2:
                raise KeyboardInterrupt
            try:
                if self._n_interrupts == 1 and self._is_leaving():
                    self._n_interrupts = 2
                    continue
                self._pass_on()
            except KeyboardInterrupt:
                continue
            except JupyterDDLError:
                pass  # the cell or the group has ended in this moment; its own answer tells
            return

    def _pass_on(self) -> None:
        group_id = self._request.group_id
        if self._n_interrupts == 1:
            self._ask(InterruptCell(group_id))
        else:
            self._ask(CloseGroup(group_id, "a second interrupt ended it"))

    def _ask(self, body: InterruptCell | CloseGroup | LookAtCell) -> Result:
        return self._session.ask(self._cluster, body, _ASK_TIMEOUT_S)
