"""Waits for a run in the foreground: snapshots in, interrupts forwarded, controllers revived."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from jupyter_ddl.client.link import Mailbox
from jupyter_ddl.errors import (
    ControllerError,
    JupyterDDLError,
    LedgerBusyError,
    RunNotFoundError,
)
from jupyter_ddl.ledger.reader import read_ledger, read_run_line, read_submitted
from jupyter_ddl.ledger.reducer import fold_all
from jupyter_ddl.ledger.snapshots import encoded_snapshot
from jupyter_ddl.protocol.assignment import StopWhen
from jupyter_ddl.protocol.requests import ResumeRun, StopRunRequest
from jupyter_ddl.protocol.snapshot import EncodedSnapshot
from jupyter_ddl.store.paths import ledger_path

if TYPE_CHECKING:
    from jupyter_ddl.client.session import Session

__all__ = ["IsLeaving", "OnInterrupt", "OnSnapshot", "OnTick", "PauseTeller", "wait_for_run"]

log = logging.getLogger(__name__)

_TICK_S = 0.1
_INTERRUPT_S = 0.5
_MAX_REVIVALS = 3
_PAUSES_S = (0.1, 0.5, 2.0)
"""A controller that was killed holds its name until it is gone, on a busy host for a second."""
_PAUSE_TOLD_S = 2.0

OnSnapshot = Callable[[EncodedSnapshot], Any]
OnTick = Callable[[], Any]
OnInterrupt: TypeAlias = Literal["stop", "leave"]
"""What an interrupt does to the run: it stops, or goes on without this wait."""
IsLeaving = Callable[[], bool]
"""Asked at the first interrupt: whether this process is being ended, and the run shall go on."""


class _Interrupts:
    """The first interrupt stops at the next report, the second now, the third leaves."""

    def __init__(
        self,
        session: Session,
        cluster: str,
        run_id: str,
        meaning: OnInterrupt,
        is_leaving: IsLeaving,
    ) -> None:
        self._session = session
        self._cluster = cluster
        self._run_id = run_id
        self._meaning = meaning
        self._is_leaving = is_leaving
        self._n_seen = 0

    def forward(self) -> None:
        """Pass one interrupt on, and those that come while it is passed on."""
        while True:
            self._n_seen += 1
            if self._meaning == "leave" or self._n_seen > 2:
                raise KeyboardInterrupt
            try:
                if self._n_seen == 1 and self._is_leaving():
                    self._meaning = "leave"
                    continue
                self._stop("next_report" if self._n_seen == 1 else "now")
                return
            except KeyboardInterrupt:
                continue

    def _stop(self, when: StopWhen) -> None:
        try:
            request = StopRunRequest(self._run_id, when)
            self._session.ask_controller_of(self._cluster, request)
        except RunNotFoundError:
            return  # it ended in this very moment


class PauseTeller:
    """Says in the log why a run waits, where no view does; once, and only if it lasts.

    Parameters
    ----------
    clock : callable
        Monotonic seconds.
    """

    def __init__(self, run_id: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._run_id = run_id
        self._clock = clock
        self._text = ""
        self._since_s = 0.0
        self._told: set[str] = set()

    def snapshot(self, snapshot: EncodedSnapshot) -> None:
        text = snapshot.decode().paused
        if text != self._text:
            self._text, self._since_s = text, self._clock()
        self.tick()

    def tick(self) -> None:
        if self._text in self._told or not self._text:
            return
        if self._clock() >= self._since_s + _PAUSE_TOLD_S:
            self._told.add(self._text)
            log.warning("run %s waits: %s", self._run_id, self._text)


def wait_for_run(
    session: Session,
    run_id: str,
    timeout_s: float | None,
    on_snapshot: OnSnapshot | None,
    *,
    on_tick: OnTick | None = None,
    on_interrupt: OnInterrupt = "stop",
    is_leaving: IsLeaving = lambda: False,
) -> EncodedSnapshot:
    """The last snapshot of a run, as soon as it has ended.

    A controller that dies meanwhile is started again, with the same cluster, and goes on with the
    run from its ledger.

    Parameters
    ----------
    on_snapshot, on_tick
        Called on this thread: with what is new, and about ten times per second in between.
        Without the first, the log says why a run waits.
    on_interrupt
        With ``leave``, the first interrupt ends the wait and not the run.
    is_leaving
        Asked at the first interrupt; when true, the interrupt ends the wait and not the run.

    Raises
    ------
    KeyboardInterrupt
        The third interrupt, or the first of a wait that leaves; the run goes on or is stopping.
    TimeoutError
        ``timeout_s`` passed; the run goes on.
    ControllerError
        The controller died four times in a row without bringing any trial to its end, or a training
        to its next checkpoint.
    """
    if on_snapshot is None:
        pauses = PauseTeller(run_id)
        on_snapshot, on_tick = pauses.snapshot, on_tick or pauses.tick
    cluster = read_submitted(ledger_path(run_id)).spec.cluster
    interrupts = _Interrupts(session, cluster, run_id, on_interrupt, is_leaving)
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    n_lost, done, why = 0, (0, 0), ""
    while n_lost <= _MAX_REVIVALS:
        try:
            if why:
                time.sleep(_PAUSES_S[min(n_lost, len(_PAUSES_S)) - 1])
            if _has_ended(run_id):
                return _last_snapshot(run_id, on_snapshot)
            mailbox = _watch(session, cluster, run_id)
        except KeyboardInterrupt:
            interrupts.forward()
            continue
        except ControllerError as error:
            log.info("run %s: %s", run_id, error.message)
            n_lost, why = n_lost + 1, error.message
            continue
        if mailbox is None:
            continue
        try:
            follow = partial(_followed, mailbox, deadline, on_snapshot, on_tick, run_id)
            last = _follow(follow, mailbox, interrupts)
        finally:
            session.unwatch(cluster, run_id, mailbox)
        if last is not None:
            return last
        if mailbox.newest is not None and (reached := _reached(mailbox.newest)) > done:
            done, n_lost = reached, 0  # it lived to some purpose
        n_lost += 1
    if _has_ended(run_id):
        return _last_snapshot(run_id, on_snapshot)
    raise ControllerError(
        f"the controller of cluster {cluster} ended {n_lost} times during run {run_id}"
        f"{f' ({why})' if why else ''}; see `%cluster logs`, then `%runs attach {run_id}`"
    )


def _reached(snapshot: EncodedSnapshot) -> tuple[int, int]:
    """Trials that have ended, and the step that a training would go on from."""
    seen = snapshot.decode()
    step = seen.checkpoint_step
    return seen.counts.finished, 0 if step is None else step + 1


def _has_ended(run_id: str) -> bool:
    return read_run_line(ledger_path(run_id)).finished_at_s is not None


def _watch(session: Session, cluster: str, run_id: str) -> Mailbox | None:
    """A mailbox; None when the run has ended.

    Raises
    ------
    ControllerError
        The controller died before it could answer.
    JupyterDDLError
        It can't be started or can't go on with the run: what it says.
    """
    try:
        return session.watch(cluster, run_id)
    except RunNotFoundError:
        if _has_ended(run_id):
            return None
    # A controller that came up while the ledger could not be read, or was held by another one.
    try:
        session.ask(cluster, ResumeRun(run_id))
    except LedgerBusyError as busy:
        # It has begun meanwhile, unless another one drives it.
        try:
            return session.watch(cluster, run_id)
        except RunNotFoundError:
            raise busy from None
    return session.watch(cluster, run_id)


def _follow(
    follow: Callable[[], EncodedSnapshot | None], mailbox: Mailbox, interrupts: _Interrupts
) -> EncodedSnapshot | None:
    """Until the run's end (its last snapshot), or its controller's (None)."""
    while True:
        try:
            return follow()
        except KeyboardInterrupt:
            interrupts.forward()
        # It may have come behind what was taken.
        if mailbox.newest is not None and mailbox.newest.is_final:
            return mailbox.newest


def _followed(
    mailbox: Mailbox,
    deadline: float | None,
    on_snapshot: OnSnapshot | None,
    on_tick: OnTick | None,
    run_id: str,
) -> EncodedSnapshot | None:
    # All of the loop is in its caller's `try`: an interrupt between two rounds counts, too.
    while True:
        left_s = None if deadline is None else deadline - time.monotonic()
        # Never for long: a signal that comes just before a wait begins does not end that wait.
        wait_s = min(_TICK_S if on_tick is not None else _INTERRUPT_S, left_s or _INTERRUPT_S)
        snapshot = mailbox.take(wait_s)
        if snapshot is not None and on_snapshot is not None:
            on_snapshot(snapshot)
        elif snapshot is None and on_tick is not None:
            on_tick()
        if mailbox.newest is not None and mailbox.newest.is_final:
            return mailbox.newest
        if mailbox.is_broken:
            return None
        if deadline is not None and time.monotonic() > deadline:
            raise TimeoutError(f"run {run_id} has not ended; it goes on: `%runs attach {run_id}`")


def _last_snapshot(run_id: str, on_snapshot: OnSnapshot | None) -> EncodedSnapshot:
    try:
        last = encoded_snapshot(fold_all(read_ledger(ledger_path(run_id))), time.time())
    except JupyterDDLError as error:
        raise ControllerError(f"the end of run {run_id} can't be read: {error.message}") from error
    if on_snapshot is not None:
        on_snapshot(last)
    return last
