"""Hears what workers publish on a Dask topic.

Where the scheduler lives in this process, it is asked directly: on the way through its client each
message would be encrypted and decrypted once more, which costs more than all that is done with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from distributed import Client, Scheduler, SchedulerPlugin

__all__ = ["hear"]


class _Ear(SchedulerPlugin):  # type: ignore[misc]
    def __init__(self, topic: str, on_message: Callable[[bytes], None]) -> None:
        self.name = f"hears {topic}"
        self._topic = topic
        self._on_message = on_message

    def log_event(self, topic: str, msg: Any) -> None:
        if topic == self._topic:
            self._on_message(msg)


def hear(client: Client, topic: str, on_message: Callable[[bytes], None]) -> None:
    """Call ``on_message`` on this loop with every message, until the client's scheduler is gone.

    A topic has one hearer; a later one takes its place.
    """
    scheduler = getattr(client.cluster, "scheduler", None)
    if isinstance(scheduler, Scheduler):
        scheduler.add_plugin(_Ear(topic, on_message), name=f"hears {topic}", idempotent=False)
    else:
        client.subscribe_topic(topic, lambda event: on_message(event[1]))
