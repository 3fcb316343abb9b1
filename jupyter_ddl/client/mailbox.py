"""Hands the newest snapshot from the client's loop to the thread that waits for it."""

from __future__ import annotations

import threading

from jupyter_ddl.events.snapshot import RunSnapshot

__all__ = ["Mailbox"]


class Mailbox:
    """Keeps one snapshot, the newest; older ones and repeats are dropped."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._snapshot: RunSnapshot | None = None
        self._fresh = False
        self._broken = False

    def put(self, snapshot: RunSnapshot) -> None:
        with self._changed:
            if self._snapshot is None or snapshot.seq >= self._snapshot.seq:
                self._snapshot = snapshot
                self._fresh = True
                self._changed.notify_all()

    def break_off(self) -> None:
        """Nothing more will come: the controller is gone."""
        with self._changed:
            self._broken = True
            self._changed.notify_all()

    @property
    def is_broken(self) -> bool:
        return self._broken

    @property
    def newest(self) -> RunSnapshot | None:
        """The newest snapshot, taken or not."""
        return self._snapshot

    def take(self, timeout_s: float) -> RunSnapshot | None:
        """The newest snapshot that was not taken yet; None after ``timeout_s``."""
        with self._changed:
            if not self._fresh and not self._broken:
                self._changed.wait(timeout_s)
            if not self._fresh:
                return None
            self._fresh = False
            return self._snapshot
