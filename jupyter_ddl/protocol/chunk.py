"""How rank events travel from a worker to the driver: numbered chunks on a Dask topic.

Chunks of one assignment are numbered from 0, and the assignment's Dask future returns
how many there were, so the driver notices a lost chunk and asks the worker to replay it.
"""

from __future__ import annotations

import msgspec

from jupyter_ddl.protocol.events import RankEvent

__all__ = ["AssignmentResult", "EventChunk"]


class EventChunk(msgspec.Struct, frozen=True):
    """Some events of one assignment, in order."""

    run_id: str
    assignment_id: str
    number: int
    events: tuple[RankEvent, ...]


class AssignmentResult(msgspec.Struct, frozen=True):
    """What the Dask future of an assignment returns.

    Attempts without an ``AttemptFinished`` among the chunks were not executed (their rank
    died before it reached them, or the run was stopped) and cost no budget.
    """

    assignment_id: str
    n_chunks: int
