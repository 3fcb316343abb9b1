"""Carries out what the view in a cell asks for, on a thread that may wait."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable

from jupyter_ddl.client.session import Session
from jupyter_ddl.errors import JupyterDDLError, ProtocolError, RunNotFoundError
from jupyter_ddl.events.reader import LedgerReader
from jupyter_ddl.events.reducer import fold
from jupyter_ddl.events.replies import TelemetryResult
from jupyter_ddl.events.run_state import RunState
from jupyter_ddl.spec import requests as down
from jupyter_ddl.store.paths import ledger_path, run_dir
from jupyter_ddl.views import messages as say
from jupyter_ddl.views.answers import log_part, trial_page
from jupyter_ddl.views.channel import Answer

__all__ = ["STOP_TEXTS", "RunRequests"]

log = logging.getLogger(__name__)

_MAX_WAITING = 32
_TIMEOUT_S = 10.0
_TELEMETRY_S = 1.0
STOP_TEXTS = {
    "next_report": "stopping at the next report",
    "now": "stopping now",
    "epoch": "ending after this epoch",
    "keep_best": "finishing with the best trial",
}


class RunRequests:
    """Answers for one run, in order, on a thread of its own until :meth:`close`.

    Parameters
    ----------
    answer : callable
        Gets one answer per request that has one.
    show : callable, optional
        Gets the telemetry of the run about once a second.
    """

    def __init__(
        self,
        session: Session,
        cluster: str,
        run_id: str,
        answer: Callable[[Answer], None],
        show: Callable[[say.TelemetryView], None] | None = None,
    ) -> None:
        self._session = session
        self._cluster = cluster
        self._run_id = run_id
        self._answer = answer
        self._show = show
        self._reader: LedgerReader | None = None
        self._state = RunState()
        self._queue: queue.Queue[say.FromBrowser | None] = queue.Queue(_MAX_WAITING)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"ddl-view-{run_id}", daemon=True)
        self._thread.start()

    def put(self, body: say.FromBrowser) -> bool:
        """Hand in a request; False when too many wait already."""
        try:
            self._queue.put_nowait(body)
        except queue.Full:
            return False
        return True

    def run_ended(self) -> None:
        """There is no telemetry of it any more."""
        self._ended.set()

    def close(self) -> None:
        """What waits is not answered any more.  Does not wait for the thread."""
        self._ended.set()
        self._show = None
        while True:
            try:
                self._queue.put_nowait(None)
                return
            except queue.Full:
                self._queue.get_nowait()

    def _run(self) -> None:
        try:
            while True:
                try:
                    body = self._queue.get(timeout=_TELEMETRY_S)
                except queue.Empty:
                    self._measure()
                    continue
                if body is None:
                    return
                self._answer(self._answered(body))
        finally:
            if self._reader is not None:
                self._reader.close()

    def _answered(self, body: say.FromBrowser) -> Answer:
        number = getattr(body, "id", 0)
        try:
            if getattr(body, "run_id", self._run_id) != self._run_id:
                raise ProtocolError(f"this view shows run {self._run_id} and no other")
            return self._carry_out(body)
        except JupyterDDLError as error:
            return say.Denied(number, error.code, error.message)
        except Exception:
            log.exception("a request of the view of run %s failed", self._run_id)
            return say.Denied(number, "DDL-0000", "this failed; the kernel's log tells more")

    def _carry_out(self, body: say.FromBrowser) -> Answer:
        match body:
            case say.StopRun(id=number, how=how):
                self._ask(down.StopRunRequest(self._run_id, how))
                return say.Done(number, STOP_TEXTS[how])
            case say.StopTrial(id=number, trial=trial):
                self._ask(down.StopTrialRequest(self._run_id, trial))
                return say.Done(number, f"trial {trial} is told to stop")
            case say.GetTrials():
                return trial_page(self._folded(), body, time.time())
            case say.GetLog():
                return log_part(self._folded(), run_dir(self._run_id), body)
            case _:
                raise ProtocolError(f"the view in a cell can't ask for {type(body).__name__}")

    def _ask(self, body: down.Body) -> None:
        try:
            self._session.ask_controller_of(self._cluster, body)
        except RunNotFoundError:
            if self._folded().end is None:
                raise  # otherwise it ended in this very moment

    def _folded(self) -> RunState:
        if self._reader is None:
            self._reader = LedgerReader(ledger_path(self._run_id))
        for event in self._reader.poll():
            fold(self._state, event)
        return self._state

    def _measure(self) -> None:
        show = self._show
        if show is None or self._ended.is_set():
            return
        try:
            result = self._session.ask(self._cluster, down.GetTelemetry(self._run_id), _TIMEOUT_S)
        except JupyterDDLError as error:
            log.debug("no telemetry of run %s: %s", self._run_id, error.message)
            return
        if isinstance(result, TelemetryResult):
            show(say.TelemetryView(0, self._cluster, result.telemetry, self._run_id))
