"""A rank's signs of life for its group: which phase it is in, and how many steps it has made."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

from jupyter_ddl.protocol.events import Beat
from jupyter_ddl.protocol.rank_messages import LoaderWait

__all__ = ["Heartbeat", "LoaderWatch", "Phase"]


# In a rank: which share of the time its cell waits for torch's DataLoader.
#
# The loader's ``__next__`` is timed from when the cell has imported torch; importing it is left to
# the cell.  What another thread than the cell's waits for is no loss, and not counted.

_INTERVAL_S = 1.0
_CHANGE = 0.01
"""A share that has hardly changed is not told again."""


class LoaderWatch:
    """Tells the share of each second, from a daemon thread of its own.

    Parameters
    ----------
    send : callable
        Gets a message when the share has changed; called in the thread.
    clock : callable
        Seconds.
    """

    def __init__(
        self, send: Callable[[LoaderWait], None], clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._send = send
        self._clock = clock
        self._thread_id = threading.get_ident()
        self._depth = 0
        self._is_training: Callable[[], bool] = lambda: True
        self.waited_s = 0.0
        """All time so far; what is waited for just now comes at its end."""
        self.n_samples = 0
        """Of batches that a cell was given while gradients were on."""
        self.n_asides = 0
        """Batches without gradients, and whatever else belongs to no step of a training."""
        self.n_workers: int | None = None
        """Of the loader that was read last; None: none was."""
        self._since_s: float | None = None
        self._seen = (clock(), 0.0)
        self._told: float | None = None
        self._is_hooked = False

    def start(self) -> None:
        """Begin; made and started on the thread that executes the cell."""
        self.hook()
        threading.Thread(target=self._run, name="ddl-loader-watch", daemon=True).start()

    def hook(self) -> None:
        """Time torch's DataLoader if the cell has imported it."""
        module: Any = sys.modules.get("torch.utils.data.dataloader")
        iterator: Any = getattr(module, "_BaseDataLoaderIter", None)
        if iterator is None or self._is_hooked:
            return
        self._is_hooked = True
        self._is_training = sys.modules["torch"].is_grad_enabled
        iterator.__next__ = self._timed(iterator.__next__)

    def step_aside(self) -> None:
        """What happens now is no step like the others."""
        self.n_asides += 1

    def tell(self) -> None:
        """Send the share of the time since the last call, if there is news."""
        now_s, since_s = self._clock(), self._since_s
        waited_s = self.waited_s + (0.0 if since_s is None else max(0.0, now_s - since_s))
        passed_s, new_s = now_s - self._seen[0], waited_s - self._seen[1]
        self._seen = (now_s, waited_s)
        if passed_s <= 0 or (waited_s == 0 and self._told is None):
            return
        share = round(min(1.0, max(0.0, new_s / passed_s)), 3)
        if self._told is None or abs(share - self._told) >= _CHANGE:
            self._told = share
            self._send(LoaderWait(share))

    def _timed(self, step: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @functools.wraps(step)
        def timed(iterator: Any) -> Any:
            if self._depth or threading.get_ident() != self._thread_id:
                return step(iterator)
            self._depth = 1
            self._since_s = began_s = self._clock()
            try:
                batch = step(iterator)
            finally:
                self._since_s = None
                self.waited_s += self._clock() - began_s
                self._depth = 0
            if self._is_training():
                self.n_samples += _n_samples_in(batch)
                self.n_workers = getattr(iterator, "_num_workers", None)
            else:
                self.n_asides += 1
            return batch

        return timed

    def _run(self) -> None:
        while True:
            time.sleep(_INTERVAL_S)
            self.hook()
            self.tell()


def _n_samples_in(batch: Any) -> int:
    """How many samples a batch has, by its first tensor; 0 where nothing tells."""
    # It may be of a class of the cell's own, and counting must not end a training.
    with contextlib.suppress(Exception):
        for _ in range(4):
            shape = getattr(batch, "shape", None)
            if shape is not None:
                return int(shape[0]) if len(shape) else 1
            if isinstance(batch, Mapping):
                batch = next(iter(batch.values()), None)
            elif isinstance(batch, list | tuple) and batch:
                batch = batch[0]
            else:
                break
    return 0


Phase: TypeAlias = Literal["loading", "rendezvous", "cell", "leaving"]


class Heartbeat:
    """Sends a ``Beat`` about once a second while something changes, from a thread of its own.

    A step is a report, or a step of any torch optimizer.  Counting one is an addition; the thread
    wakes once a second, and stays silent while its rank makes no progress.

    Parameters
    ----------
    on_step : callable, optional
        Gets every optimizer that has made a step, in that one's thread.
    """

    def __init__(
        self,
        trial: int,
        attempt: int,
        send: Callable[[Beat], None],
        on_step: Callable[[Any], None] | None = None,
    ) -> None:
        self._on_step = on_step
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

    def _on_optimizer_step(self, optimizer: Any, *_: object) -> None:
        self._n_steps += 1
        if self._on_step is not None:
            self._on_step(optimizer)
