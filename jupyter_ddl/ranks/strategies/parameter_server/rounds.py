"""When a parameter server makes an update, and of whose gradients.  Pure."""

from __future__ import annotations

from collections import Counter

from jupyter_ddl.protocol.staleness import MAX_STALENESS, Staleness

__all__ = ["Rounds", "WheneverTheyLike"]


class Rounds:
    """One update of the gradients of all workers that are still there.

    Parameters
    ----------
    n_workers : int
    """

    def __init__(self, n_workers: int) -> None:
        self.n_workers = n_workers
        self.present = set(range(n_workers))
        """Those that are waited for."""
        self.version = 0
        """Updates so far."""
        self.staleness: Counter[int] = Counter()
        """Gradients that were used, by the updates since their parameters."""
        self.n_dropped = 0
        self._has_begun = False
        self._waiting: dict[int, int] = {}

    def begin(self) -> None:
        """The first worker has told what training begins with."""
        self._has_begun = True

    def push(self, worker: int, version: int) -> None:
        """A gradient has come, computed from the parameters of that version.

        Of a worker that was lost and came back it is the first sign: nobody waits for it before.
        """
        self.present.add(worker)
        self._waiting[worker] = version

    def leave(self, worker: int) -> None:
        """A worker is done, or lost; what it has given counts."""
        self.present.discard(worker)

    def due(self) -> tuple[int, ...]:
        """The workers whose gradients make the next update together; none: wait for more.

        Counts the update as made.
        """
        if not self._is_open() or not self._waiting or self.present - set(self._waiting):
            return ()
        workers = tuple(sorted(self._waiting))
        for worker in workers:
            self._used(worker)
        self.version += 1
        return workers

    def counted(self, server: int) -> Staleness:
        """What was counted so far, by the server of that rank."""
        counts = [0] * (1 + min(MAX_STALENESS, max(self.staleness, default=0)))
        for staleness, n_gradients in self.staleness.items():
            counts[min(MAX_STALENESS, staleness)] += n_gradients
        return Staleness(server, tuple(counts), self.n_dropped)

    def dropped(self) -> tuple[int, ...]:
        """The workers whose gradients are given up, and who are told to go on."""
        return ()

    def _is_open(self) -> bool:
        return self._has_begun or 0 not in self.present

    def _used(self, worker: int) -> None:
        self.staleness[self.version - self._waiting.pop(worker)] += 1


class WheneverTheyLike(Rounds):
    """One update for each gradient, in the order in which they come.

    Parameters
    ----------
    max_staleness : int or None
        A gradient from parameters that are more updates old is dropped.
    """

    def __init__(self, n_workers: int, max_staleness: int | None) -> None:
        super().__init__(n_workers)
        self._max_staleness = max_staleness

    def due(self) -> tuple[int, ...]:
        if not self._is_open():
            return ()
        for worker in self._waiting:
            if not self._is_old(worker):
                self._used(worker)
                self.version += 1
                return (worker,)
        return ()

    def dropped(self) -> tuple[int, ...]:
        if not self._is_open():
            return ()
        found = tuple(worker for worker in self._waiting if self._is_old(worker))
        for worker in found:
            del self._waiting[worker]
        self.n_dropped += len(found)
        return found

    def _is_old(self, worker: int) -> bool:
        limit = self._max_staleness
        return limit is not None and self.version - self._waiting[worker] > limit
