"""A server that says what a test wants: a thousand workers, GPUs, text that tries to be a program.

Everything else of the page is real; only the panel's websocket ends here.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import msgspec
from playwright.sync_api import Page, WebSocketRoute

from jupyter_ddl import __version__
from jupyter_ddl.commands.cluster import form_of
from jupyter_ddl.plugins import BACKENDS
from jupyter_ddl.protocol import view_messages as say
from jupyter_ddl.protocol.replies import ClusterStatus, WorkerStatus
from jupyter_ddl.protocol.snapshot import BestTrial, Counts, RunLine, RunSnapshot
from jupyter_ddl.protocol.telemetry import ClusterTelemetry, GpuSample, WorkerSample
from jupyter_ddl.protocol.verb import load_verb
from jupyter_ddl.views.channel import Columns

__all__ = ["ScriptedServer", "cluster", "gpu_telemetry", "run_line", "snapshot"]

_GIB = 2**30
_NOW_S = time.time


class ScriptedServer:
    """Answers every request with ``Done``, unless ``answer`` knows better."""

    def __init__(self, page: Page, lists: Callable[[], list[say.ToBrowser]]) -> None:
        self.received: list[dict[str, Any]] = []
        self.answers: dict[str, Callable[[dict[str, Any]], say.ToBrowser | Columns]] = {}
        self._lists = lists
        self._socket: WebSocketRoute | None = None
        self._seq = 0
        page.route_web_socket("**/jupyter-ddl/api/live*", self._open)

    def say(self, message: say.ToBrowser | Columns) -> None:
        """Send a message, numbered."""
        if self._socket is None:
            raise AssertionError("the panel has not connected")
        if isinstance(message, Columns):
            self._socket.send(message.frame())
            return
        if "seq" in message.__struct_fields__:
            self._seq += 1
            message = msgspec.structs.replace(message, seq=self._seq)
        self._socket.send(msgspec.json.encode(message).decode())

    def say_all(self) -> None:
        """Send the lists as they are now."""
        for message in self._lists():
            self.say(message)

    def _open(self, socket: WebSocketRoute) -> None:
        self._socket = socket
        self._seq = 0
        socket.on_message(self._hear)
        backends = tuple(map(form_of, BACKENDS.names()))
        self.say(say.Welcome(0, _NOW_S(), version=__version__, backends=backends))
        self.say_all()

    def _hear(self, text: str | bytes) -> None:
        body = json.loads(text)
        self.received.append(body)
        kind = body["kind"]
        if kind == "again":
            self.say_all()
        elif kind in self.answers:
            self.say(self.answers[kind](body))
        elif "id" in body:
            self.say(say.Done(body["id"]))
            if kind.startswith("watch"):
                self.say_all()


def cluster(name: str, n_workers: int, *, n_busy: int = 0, active: tuple[str, ...] = ()) -> Any:
    """A cluster that is ready, with one slot per worker."""
    workers = tuple(
        WorkerStatus(
            name=f"w{number}",
            address=f"tls://10.0.{number // 250}.{number % 250}:4000",
            host=f"node-{number // 4}",
            n_slots=1,
            n_busy=int(number < n_busy),
        )
        for number in range(n_workers)
    )
    return ClusterStatus(
        name=name,
        backend="local",
        state="ready",
        controller_pid=4242,
        scheduler_address="tls://127.0.0.1:4000",
        started_at_s=_NOW_S() - 900,
        workers=workers,
        n_wanted=n_workers,
        cpus_per_worker=4,
        memory_per_worker_bytes=16 * _GIB,
        active_runs=active,
        idle_timeout_s=1800.0,
        idle_left_s=None if active else 1742.0,
        age_left_s=83_000.0,
    )


def gpu_telemetry(name: str, n_workers: int, n_gpus: int, phase: float = 0.0) -> say.TelemetryView:
    """What the workers of a cluster measure; ``phase`` moves it on."""
    workers = tuple(_sample(number, n_gpus, phase) for number in range(n_workers))
    verdicts = ("GPU 1 of w2 idle for 40 s",) if n_gpus else ()
    telemetry = ClusterTelemetry(
        seq=int(phase * 10), at_s=_NOW_S(), workers=workers, verdicts=verdicts, n_workers=n_workers
    )
    return say.TelemetryView(seq=0, cluster=name, telemetry=telemetry)


def _sample(number: int, n_gpus: int, phase: float) -> WorkerSample:
    def share(salt: int) -> float:
        return ((number * 37 + salt * 53 + int(phase * 100)) % 101) / 100

    gpus = tuple(
        GpuSample(
            uuid=f"GPU-{number}-{index}",
            index=index,
            name="NVIDIA H100",
            utilization=0.0 if (number, index) == (2, 1) else share(index),
            memory_used_bytes=int(80 * _GIB * share(index + 7)),
            memory_total_bytes=80 * _GIB,
            power_w=300 + 400 * share(index),
            temperature_c=40 + 40 * share(index),
        )
        for index in range(n_gpus)
    )
    return WorkerSample(
        worker=f"w{number}",
        host=f"node-{number // 4}",
        at_s=_NOW_S(),
        cpu=4 * share(3),
        n_cpus=4.0,
        memory_bytes=int(16 * _GIB * share(5)),
        memory_limit_bytes=16 * _GIB,
        gpu_state="" if n_gpus else "n/a: no NVIDIA driver",
        gpus=gpus,
    )


def run_line(run_id: str, name: str, state: str, **fields: Any) -> RunLine:
    """A run in the list; a running one is driven by cluster ``train``."""
    now_s = _NOW_S()
    is_live = state in {"running", "starting"}
    known: dict[str, Any] = {
        "verb": "search",
        "can": load_verb("search").can,
        "nouns": load_verb("search").nouns,
        "cluster": "train",
        "created_at_s": now_s - 320,
        "finished_at_s": None if is_live else now_s - 20,
        "n_trials": 40,
        "n_finished": 25 if is_live else 40,
        "best": 0.9431,
        "metric": "val_acc",
        "live": is_live,
    }
    return RunLine(run_id=run_id, name=name, state=state, **(known | fields))


def snapshot(run_id: str, name: str) -> say.RunView:
    """A search in its middle."""
    shot = RunSnapshot(
        seq=1,
        run_id=run_id,
        name=name,
        verb="search",
        can=load_verb("search").can,
        nouns=load_verb("search").nouns,
        state="running",
        cluster="train",
        created_at_s=_NOW_S() - 320,
        n_trials=40,
        counts=Counts(running=2, complete=25),
        metric="val_acc",
        best=BestTrial(number=3, params={"lr": 0.01}, value=0.9431),
    )
    return say.RunView(seq=0, at_s=_NOW_S(), snapshot=shot)
