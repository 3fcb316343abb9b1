"""Counts the Dask tasks of one client where they are known: beside the scheduler.

The client registers it, and asks for the counts while it waits; it goes with the client.  Only the
tasks that this client submits from then on are followed, so the others cost a look-up each.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from distributed import Scheduler
from distributed.diagnostics.plugin import SchedulerPlugin

__all__ = ["COUNT_TASKS", "TaskCounts"]

COUNT_TASKS = "jupyter_ddl_count_tasks"
"""Name of the scheduler's handler that answers with a client's counts."""
_ENDED = ("memory", "erred")


class TaskCounts(SchedulerPlugin):  # type: ignore[misc]  # distributed has no types
    """Used on the scheduler's loop only."""

    def __init__(self, client: str) -> None:
        self.name = name_of(client)
        self._client = client
        self._stages: dict[Any, Literal["known", "wanted", "done"]] = {}
        """By key, of the tasks that the scheduler has not forgotten."""
        self._counts = {"tasks": 0, "done": 0, "processing": 0, "in_memory": 0}

    @property
    def counts(self) -> dict[str, int]:
        """Tasks that were submitted, have ended, are processed now, and keep their result."""
        return dict(self._counts)

    async def start(self, scheduler: Scheduler) -> None:
        """Called by Dask once the scheduler has this plugin."""

        def count_tasks(client: str) -> dict[str, int]:
            return dict(scheduler.plugins[name_of(client)].counts)

        scheduler.handlers[COUNT_TASKS] = count_tasks

    def update_graph(
        self, scheduler: Scheduler, *, client: str, tasks: Iterable[Any], **_: Any
    ) -> None:
        """Called by Dask for what a client submits."""
        if client == self._client:
            for key in tasks:
                self._stages.setdefault(key, "known")

    def transition(self, key: Any, start: str, finish: str, *_: Any, **__: Any) -> None:
        """Called by Dask for every change of every task."""
        stage = self._stages.get(key)
        if stage is None:
            return
        if finish == "forgotten":
            del self._stages[key]
        counts = self._counts
        if stage == "known":
            # Results that lie there already, and what leads to them, are not computed.
            if start != "released" or finish == "forgotten":
                return
            self._stages[key] = stage = "wanted"
            counts["tasks"] += 1
        counts["processing"] += (finish == "processing") - (start == "processing")
        counts["in_memory"] += (finish == "memory") - (start == "memory")
        if finish in _ENDED and stage == "wanted":
            self._stages[key] = "done"
            counts["done"] += 1

    def remove_client(self, scheduler: Scheduler, client: str) -> None:
        """Called by Dask when a client has gone."""
        if client == self._client:
            scheduler.remove_plugin(self.name)


def name_of(client: str) -> str:
    """Name of the plugin that counts for a client."""
    return f"jupyter_ddl_tasks_of_{client}"
