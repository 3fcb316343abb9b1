"""A worker that is lost between the choice of a place and the sending of an assignment."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from jupyter_ddl.driving.calls import WorkerLostError
from jupyter_ddl.driving.dispatcher import Dispatcher
from jupyter_ddl.protocol.assignment import Assignment, TrialAssignment

_ASSIGNMENT = Assignment(
    run_id="r1",
    assignment_id="r1-1",
    program="none",
    trials=(TrialAssignment(0, 1, {}, 1),),
    run_dir="/nonexistent",
    blob_dirs=(),
    topic="events",
)


class Silent:
    """A scheduler's client to which nothing may be sent."""

    def submit(self, *args: Any, **options: Any) -> None:
        raise AssertionError("the scheduler would wait for the worker forever")


def test_nothing_is_sent_to_a_worker_that_is_gone() -> None:
    dispatcher = Dispatcher(Silent(), "events", is_there={"a"}.__contains__)
    with pytest.raises(WorkerLostError, match="worker b is gone"):
        asyncio.run(dispatcher.execute(_ASSIGNMENT, "b", lambda events: None))
