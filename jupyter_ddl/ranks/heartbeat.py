"""A rank's signs of life for its group: which phase it is in, and how many steps it has made."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from jupyter_ddl.protocol.events import Beat

__all__ = ["Heartbeat", "Phase"]

Phase: TypeAlias = Literal["loading", "rendezvous", "cell", "leaving"]

_INTERVAL_S = 1.0


class Heartbeat:
    """Sends a ``Beat`` about once a second while something changes, from a thread of its own.

    A step is a report, or a step of any torch optimizer.  Counting one is an addition; the thread
    wakes once a second, and stays silent while its rank makes no progress.
    """

    def __init__(self, trial: int, attempt: int, send: Callable[[Beat], None]) -> None:
        self._trial = trial
        self._attempt = attempt
        self._send = send
        self._phase: Phase = "loading"
        self._n_steps = 0
        self._told: tuple[Phase, int] = (self._phase, 0)
        self._hook: Any = None
        self._sending = threading.Lock()
        self._closed = threading.Event()
        thread = threading.Thread(target=self._run, name="ddl-beats", daemon=True)
        thread.start()

    def begin(self, phase: Phase) -> None:
        """Enter a phase; told at once."""
        self._phase = phase
        self._count_optimizer_steps()
        self._beat()

    def step(self) -> None:
        self._n_steps += 1

    def close(self) -> None:
        """On return no beat follows any more."""
        self._closed.set()
        if self._hook is not None:
            self._hook.remove()
        with self._sending:
            pass  # a beat that is just being sent goes before what the caller sends next

    def _run(self) -> None:
        while not self._closed.wait(_INTERVAL_S):
            self._count_optimizer_steps()
            self._beat()

    def _beat(self) -> None:
        with self._sending:
            now = (self._phase, self._n_steps)
            if self._closed.is_set() or now == self._told:
                return
            self._told = now
            self._send(Beat(self._trial, self._attempt, *now, time.time()))

    def _count_optimizer_steps(self) -> None:
        """Count them from when the cell has imported torch; importing it is left to the cell."""
        module: Any = sys.modules.get("torch.optim.optimizer")
        register = getattr(module, "register_optimizer_step_post_hook", None)
        if self._hook is None and register is not None:
            self._hook = register(self._on_optimizer_step)

    def _on_optimizer_step(self, *_: object) -> None:
        self._n_steps += 1
