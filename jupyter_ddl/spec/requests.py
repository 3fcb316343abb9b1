"""What a client asks a controller: typed requests, answered one by one.

A frame on the socket is a 4-byte big-endian length and the msgpack of one struct: :class:`Request`
down; :class:`jupyter_ddl.events.replies.Reply` or a snapshot push up.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from jupyter_ddl.spec.assignment import StopWhen
from jupyter_ddl.spec.run import RunSpec

__all__ = [
    "MAX_FRAME_BYTES",
    "PROTOCOL_VERSION",
    "Adapt",
    "Body",
    "GetLog",
    "GetStatus",
    "Hello",
    "Request",
    "ResumeRun",
    "Scale",
    "StopCluster",
    "StopRunRequest",
    "StopTrialRequest",
    "SubmitRun",
    "WatchRun",
]

PROTOCOL_VERSION = 1
MAX_FRAME_BYTES = 4 << 20
"""Captured values travel as blobs, so a request is small: the cell and its options."""


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """First request of a connection."""

    version: int
    client: str


class GetStatus(msgspec.Struct, frozen=True, tag="get_status"):
    """Workers, slots, active runs, leases."""


class SubmitRun(msgspec.Struct, frozen=True, tag="submit_run"):
    spec: RunSpec


class ResumeRun(msgspec.Struct, frozen=True, tag="resume_run"):
    """Go on with a run whose ledger is on disk; finished trials stay finished."""

    run_id: str


class WatchRun(msgspec.Struct, frozen=True, tag="watch_run"):
    """Answered with the current snapshot; newer ones are pushed until the run has ended."""

    run_id: str


class StopRunRequest(msgspec.Struct, frozen=True, tag="stop_run_request"):
    run_id: str
    when: StopWhen = "next_report"


class StopTrialRequest(msgspec.Struct, frozen=True, tag="stop_trial_request"):
    run_id: str
    trial: int
    when: StopWhen = "next_report"


class Scale(msgspec.Struct, frozen=True, tag="scale"):
    n_workers: int


class Adapt(msgspec.Struct, frozen=True, tag="adapt"):
    minimum: int
    maximum: int


class GetLog(msgspec.Struct, frozen=True, tag="get_log"):
    """The newest lines of the controller's log, or of one worker's (name or address)."""

    worker: str | None = None
    n_lines: int = 200


class StopCluster(msgspec.Struct, frozen=True, tag="stop_cluster"):
    """End the controller and all below it.  Unfinished runs stay resumable."""


Body: TypeAlias = (
    Hello
    | GetStatus
    | SubmitRun
    | ResumeRun
    | WatchRun
    | StopRunRequest
    | StopTrialRequest
    | Scale
    | Adapt
    | GetLog
    | StopCluster
)


class Request(msgspec.Struct, frozen=True):
    id: int
    body: Body
