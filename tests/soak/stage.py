"""Who uses what a soak kills: notebooks that go on with their runs, a panel that comes back."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable

import websocket

from tests.integration.server.jupyter_process import Browser, JupyterServer
from tests.leaks import Home
from tests.live_kernel import LiveKernel
from tests.until import until

__all__ = ["Notebook", "Panel"]

_POLL_S = 0.2
_NOT_SUBMITTED = (
    ") is gone; its runs are on disk",
    "not answer on its socket",
    "is not running; `%cluster start",
    "while starting;",
)


class Notebook(threading.Thread):
    """Executes a cell again and again; behind a killed kernel it attaches to the unfinished run.

    Parameters
    ----------
    cluster : str
        Its name: whoever has a name for a cluster says it in each notebook.
    start : str
        The line that starts it.
    cell : callable
        From the number of the run, from 0, to its source.
    unfinished : callable
        Ids of runs of this notebook that have not ended.
    """

    def __init__(
        self,
        home: Home,
        name: str,
        cluster: str,
        start: str,
        cell: Callable[[int], str],
        unfinished: Callable[[], list[str]],
    ) -> None:
        super().__init__(name=f"soak-{name}", daemon=True)
        self._home = home
        self._cluster = cluster
        self._start = start
        self._cell = cell
        self._unfinished = unfinished
        self._kernel: LiveKernel | None = None
        self._is_closing = threading.Event()
        self.has_ended = threading.Event()
        self.n_runs = 0
        self.n_repeated = 0
        """Cells whose controller was killed while they were submitted."""
        self.drawn_at_s = 0.0
        """When the view of a run was last drawn anew (Unix seconds)."""
        self.complaints: list[str] = []
        """Cells that ended in an error although nobody has killed their kernel."""

    @property
    def pid(self) -> int | None:
        """Of the kernel, once a run is shown in it."""
        kernel = self._kernel
        return None if kernel is None else kernel.pid

    def kill(self) -> None:
        pid = self.pid
        assert pid is not None
        self._kernel = None
        self.drawn_at_s = 0.0
        os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        """Let the run that goes on come to its end, and start no other."""
        self._is_closing.set()

    def run(self) -> None:
        try:
            while not self._is_closing.is_set() or self._unfinished():
                self._live()
        except Exception:  # noqa: BLE001 - whatever it is, the soak tells it
            self.complaints.append(f"{self.name}: {traceback.format_exc()}")
        finally:
            self.has_ended.set()

    def _live(self) -> None:
        """The life of one kernel."""
        kernel = LiveKernel(self._home)
        try:
            kernel.run("%load_ext jupyter_ddl").check()
            self._choose_cluster(kernel)
            while not self._is_closing.is_set() or self._unfinished():
                unfinished = self._unfinished()
                if unfinished:
                    code = f"%runs attach {unfinished[0]}"
                else:
                    code = self._cell(self.n_runs)
                    self.n_runs += 1
                if not self._follow(kernel, code):
                    return
        finally:
            self._kernel = None
            kernel.close(stop_clusters=False)

    def _choose_cluster(self, kernel: LiveKernel) -> None:
        """Use the cluster; one that is gone is started, or found when another one has done so."""
        lines = itertools.cycle((f"%cluster attach {self._cluster}", self._start))
        until(lambda: kernel.run(next(lines)).status == "ok", 60.0, f"cluster {self._cluster}")

    def _follow(self, kernel: LiveKernel, code: str) -> bool:
        """Until the cell's end; False when the kernel has ended before."""
        message_id = kernel.start(code)
        self._kernel = kernel
        drawn = 0
        while (out := kernel.poll(message_id, _POLL_S)) is None or not out.status:
            if out is not None and out.n_updates > drawn:
                self.drawn_at_s, drawn = time.time(), out.n_updates
            if self._kernel is None:
                return False
        self.drawn_at_s = time.time()
        # Killed while the cell was submitted: people execute it again.
        if out.status != "ok" and any(text in out.everything for text in _NOT_SUBMITTED):
            self.n_repeated += 1
        elif out.status != "ok":
            self.complaints.append(f"{self.name}: {code.splitlines()[0]}: {out.everything}")
        return True


class Panel(threading.Thread):
    """An open panel that watches all unfinished runs; its server is started again when it dies."""

    def __init__(self, home: Home, unfinished: Callable[[], list[str]]) -> None:
        super().__init__(name="soak-panel", daemon=True)
        self._home = home
        self._unfinished = unfinished
        self._server: JupyterServer | None = None
        self._is_closing = threading.Event()
        self.seen_at_s = 0.0
        """When a snapshot of a run came last, by the clock of its server."""
        self.complaints: list[str] = []
        self.lost: list[str] = []
        """Why connections ended although nobody has killed their server."""

    @property
    def pid(self) -> int | None:
        server = self._server
        return None if server is None or not self.seen_at_s else server.process.pid

    def kill(self) -> None:
        server = self._server
        assert server is not None
        self._server = None
        self.seen_at_s = 0.0
        server.process.kill()

    def close(self) -> None:
        self._is_closing.set()

    def run(self) -> None:
        try:
            while not self._is_closing.is_set():
                self._live()
        except Exception:  # noqa: BLE001 - whatever it is, the soak tells it
            self.complaints.append(f"panel: {traceback.format_exc()}")

    def _live(self) -> None:
        server = JupyterServer(self._home)
        try:
            self._server = server
            while self._server is not None and not self._is_closing.is_set():
                # A server that is starved of CPU time cuts connections; panels come back.
                try:
                    self._read(server.connect())
                except (OSError, websocket.WebSocketException) as error:
                    if self._server is not None and server.process.poll() is None:
                        self.lost.append(f"{type(error).__name__}: {error}")
        finally:
            self._server = None
            server.stop()

    def _read(self, browser: Browser) -> None:
        ids = itertools.count(1)
        watched: set[str] = set()
        newest: dict[str, int] = {}
        while not self._is_closing.is_set() and self._server is not None:
            wanted = self._unfinished()
            for kind, run_ids in (
                ("watch", set(wanted) - watched),
                ("unwatch", watched - set(wanted)),
            ):
                for run_id in run_ids:
                    browser.send(kind, id=next(ids), run_id=run_id)
            watched = set(wanted)
            with contextlib.suppress(websocket.WebSocketTimeoutException):
                message = browser.next(_POLL_S)
                browser.seen.clear()
                if message["kind"] == "denied":
                    self.complaints.append(f"panel: {message}")
                if message["kind"] == "run":
                    snapshot = message["snapshot"]
                    if snapshot["seq"] > newest.setdefault(snapshot["run_id"], snapshot["seq"]):
                        self.seen_at_s = message["at_s"]
                    newest[snapshot["run_id"]] = snapshot["seq"]
