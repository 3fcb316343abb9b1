"""What one line of a recording is: its head, an event of the run, a measurement, printed text."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from jupyter_ddl.events.messages import Event
from jupyter_ddl.events.telemetry import WorkerSample

__all__ = ["FORMAT", "Fact", "Head", "Measured", "Origin", "Printed", "Recording"]

FORMAT = 1
"""Version of these lines; a file states its own."""

Origin: TypeAlias = Literal["recorded", "simulated"]
"""``simulated``: no such run has taken place; every view of it says so."""


class Head(msgspec.Struct, frozen=True, tag="recording"):
    """The first line."""

    format: int
    origin: Origin
    version: str
    """Of the package that wrote it."""
    run_id: str
    verb: str
    name: str = ""
    line: str = ""
    """The cell's first line, with the magic."""
    cell: str = ""
    """The rest of the cell."""
    left_out: tuple[str, ...] = ()
    """What the file has no room for, in words."""


class Measured(msgspec.Struct, frozen=True, tag="measured"):
    """What one worker has measured at one moment."""

    sample: WorkerSample


class Printed(msgspec.Struct, frozen=True, tag="printed"):
    """Lines that a trial or a rank has printed by ``at_s``."""

    at_s: float
    trial: int
    lines: tuple[str, ...]
    rank: int | None = None


Fact: TypeAlias = Event | Measured | Printed


class Recording(msgspec.Struct, frozen=True):
    """A whole file: the head, then facts in the order in which they were committed."""

    head: Head
    facts: tuple[Fact, ...]
