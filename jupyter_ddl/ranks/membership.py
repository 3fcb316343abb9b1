"""Which ranks of the group are there, as the driver has told last.

Connections tell that a rank is gone before the driver does, but not to all ranks at the same time;
what they decide by is the driver's word.
"""

from __future__ import annotations

import threading
from collections.abc import Collection

from jupyter_ddl.protocol.group import MembersChanged

__all__ = ["Membership", "membership"]


class Membership:
    """Told by the control thread, read by the others."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._absent: frozenset[int] = frozenset()
        self._latest: MembersChanged | None = None

    def begin(self, absent: Collection[int]) -> None:
        """The round begins, without these ranks."""
        self._absent = frozenset(absent)

    def first(self, world_size: int) -> list[int]:
        """The ranks with which the round has begun."""
        return [rank for rank in range(world_size) if rank not in self._absent]

    def take(self, message: MembersChanged) -> None:
        """The driver has told; an older word that comes later says nothing."""
        with self._changed:
            if self._latest is None or message.number > self._latest.number:
                self._latest = message
                self._changed.notify_all()

    @property
    def number(self) -> int:
        """Changes that were told so far."""
        return 0 if self._latest is None else self._latest.number

    def lives(self, world_size: int) -> dict[int, int]:
        """By rank of those that are there, of a group that began with so many: its processes."""
        return (
            dict.fromkeys(self.first(world_size), 1) if self._latest is None else self._latest.lives
        )

    def wait_beyond(self, number: int, timeout_s: float) -> bool:
        """Wait until another change is told; False: none was within that time."""
        with self._changed:
            return self._changed.wait_for(lambda: self.number > number, timeout_s)


membership = Membership()
"""Of the group that this rank process is in: it serves one round of one group."""
