"""Waits for a run with its live view in the cell, and tells how it ended."""

from __future__ import annotations

import contextvars
import logging
import threading
from typing import TYPE_CHECKING

from jupyter_ddl.errors import JupyterDDLError
from jupyter_ddl.magics.kernel import ShellService, is_kernel_ending
from jupyter_ddl.protocol.snapshot import EncodedSnapshot, RunSnapshot
from jupyter_ddl.store.paths import run_dir
from jupyter_ddl.views.cell_output import say
from jupyter_ddl.views.display import (
    LiveDisplay,
    Screen,
    cell_screen,
    default_screen,
    in_notebook,
)
from jupyter_ddl.views.outputs import RunOutputs

if TYPE_CHECKING:
    from jupyter_ddl.client.run import Run
    from jupyter_ddl.client.waiting import OnInterrupt

__all__ = ["LiveFit", "follow", "watch"]

log = logging.getLogger(__name__)


class LiveFit:
    """The view of fits, which exists once something is fitted."""

    def __init__(self) -> None:
        self._live: _Live | None = None

    def begin(self, run: Run) -> None:
        """Put the view into the output of this cell."""
        from jupyter_ddl.client.session import session

        self._live = _Live(run.id, cell_screen(session(), run.spec.cluster, run.id))

    def snapshot(self, snapshot: EncodedSnapshot) -> None:
        if self._live is not None:
            self._live.snapshot(snapshot)

    def tick(self) -> None:
        if self._live is not None:
            self._live.tick()

    def finish(self) -> None:
        if self._live is not None:
            self._live.finish()


class _Live:
    """Feeds a display, and what stands below it, from the callbacks of a wait."""

    def __init__(
        self, run_id: str, screen: Screen | None = None, service: ShellService | None = None
    ) -> None:
        # The exception below the view has the traceback; nobody wants to read it twice.
        self._display = LiveDisplay(screen or default_screen(tracebacks=False))
        self._below = RunOutputs(run_dir(run_id)) if in_notebook() else None
        self._service = service

    def snapshot(self, snapshot: EncodedSnapshot) -> None:
        self._serve()
        self._display.offer(snapshot)
        if self._below is not None:
            self._below.offer(snapshot)

    def tick(self) -> None:
        self._serve()
        self._display.tick()
        if self._below is not None:
            self._below.tick()

    def finish(self, snapshot: EncodedSnapshot | None = None) -> None:
        self._display.finish(snapshot)
        if self._below is not None:
            self._below.finish(snapshot)

    def _serve(self) -> None:
        if self._service is not None:
            self._service.serve()


def watch(run: Run, on_interrupt: OnInterrupt = "stop") -> RunSnapshot:
    """Show a run until its end; returns its last snapshot, whatever its state.

    Raises
    ------
    KeyboardInterrupt
        The watching was left; one line says that the run goes on.
    """
    from jupyter_ddl.client.session import session
    from jupyter_ddl.client.waiting import wait_for_run

    screen = cell_screen(session(), run.spec.cluster, run.id)
    live = _Live(run.id, screen, None if screen is None else _service())
    try:
        last = wait_for_run(
            session(),
            run.id,
            None,
            live.snapshot,
            on_tick=live.tick,
            on_interrupt=on_interrupt,
            is_leaving=is_kernel_ending,
        )
    except BaseException as error:
        live.finish()
        if isinstance(error, KeyboardInterrupt):
            say(f"Run {run.id} goes on without this cell: `%runs attach {run.id}`.")
        raise
    live.finish(last)
    return last.decode()


def _service() -> ShellService:
    from IPython import get_ipython

    from jupyter_ddl.views.widget import is_live_comm

    return ShellService(get_ipython(), is_live_comm)


def follow(run: Run) -> bool:
    """Show a run while other cells run; False where nobody is there to see it.

    Returns once the view is in the output of this cell; a thread feeds it until the run's end.
    """
    from jupyter_ddl.client.session import session

    screen = cell_screen(session(), run.spec.cluster, run.id)
    if screen is None:
        return False
    live = _Live(run.id, screen)
    live.snapshot(run.encoded_snapshot())
    # What the thread shows belongs to this cell, whichever runs then.
    here = contextvars.copy_context()
    threading.Thread(
        target=here.run, args=(_follow, run, live), name=f"ddl-follow-{run.id}", daemon=True
    ).start()
    return True


def _follow(run: Run, live: _Live) -> None:
    from jupyter_ddl.client.session import session
    from jupyter_ddl.client.waiting import wait_for_run

    last = None
    try:
        last = wait_for_run(session(), run.id, None, live.snapshot, on_tick=live.tick)
    except JupyterDDLError as error:
        log.warning("run %s is no longer shown: %s", run.id, error.message)
    except RuntimeError as error:
        log.debug("run %s is no longer shown: %s", run.id, error)  # the kernel is ending
    finally:
        live.finish(last)
