"""What comes up of the ranks of a group: recorded, or for launcher and driver only."""

from __future__ import annotations

from typing import Literal

import msgspec

from jupyter_ddl.events.failure import Failure, Outcome

__all__ = [
    "Beat",
    "HangVerdict",
    "Probe",
    "RankEnded",
    "RankStarted",
    "RendezvousReady",
    "ValueKept",
    "WorkerLeaving",
]


class RankStarted(msgspec.Struct, frozen=True, tag="rank_started"):
    """A rank of a group begins; ``log_start`` is a byte offset in ``<run_dir>/logs/<log>``."""

    trial: int
    attempt: int
    rank: int
    at_s: float
    worker: str
    host: str
    pid: int
    log: str
    log_start: int
    device: str = "cpu"
    world_size: int = 0
    """Ranks of this round; 0 in ledgers of before."""


class RankEnded(msgspec.Struct, frozen=True, tag="rank_ended"):
    """A rank of a group is over; the group's own end is its ``AttemptFinished``."""

    trial: int
    attempt: int
    rank: int
    outcome: Outcome
    at_s: float
    duration_s: float
    log_end: int | None = None
    values_file: str | None = None
    failure: Failure | None = None
    inline_value: bool | int | float | str | None = None
    """The cell's value at this rank, as in :class:`AttemptFinished`."""
    has_inline_value: bool = False


class HangVerdict(msgspec.Struct, frozen=True, tag="hang_verdict"):
    """No rank of a group made a step for too long: who is to blame, and what the others do."""

    trial: int
    attempt: int
    rank: int
    """The rank that the others wait for."""
    at_s: float
    text: str
    """One sentence: which rank, which line of the cell, what the others wait for."""
    line: int | None = None
    stacks_file: str = ""
    """Directory with the stacks of all ranks, relative to the run's."""


class RendezvousReady(msgspec.Struct, frozen=True, tag="rendezvous_ready"):
    """A rank of a group is ready to be joined.  Not recorded: it is for the launcher."""

    trial: int
    attempt: int
    host: str
    port: int


class Beat(msgspec.Struct, frozen=True, tag="beat"):
    """A rank's sign of life, about once a second.  Not recorded."""

    trial: int
    attempt: int
    phase: Literal["loading", "rendezvous", "cell", "leaving"]
    n_steps: int
    """Optimizer steps and reports so far."""
    at_s: float


class Probe(msgspec.Struct, frozen=True, tag="probe"):
    """What a worker sees of a rank from outside.  Not recorded."""

    trial: int
    attempt: int
    state: str
    """The process's state as the kernel tells it: ``R``, ``S``, ``D``, ``T`` …; empty: gone."""
    cpu_share: float
    """CPU time that it and its children took lately, in CPUs."""
    stacks: str
    """Of all its threads, as ``faulthandler`` writes them; empty when there are none."""


class ValueKept(msgspec.Struct, frozen=True, tag="value_kept"):
    """A rank can't send its cell's value home.  Not recorded: its group tells it once."""

    trial: int
    attempt: int
    why: str


class WorkerLeaving(msgspec.Struct, frozen=True, tag="worker_leaving"):
    """The worker of an attempt was told to go and ends it soon.  Not recorded."""

    trial: int
    attempt: int
    grace_s: float
