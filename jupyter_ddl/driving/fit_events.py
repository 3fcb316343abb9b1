"""What the machine of a run of fits is told and asks for, beside what every run is.  Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import msgspec

from jupyter_ddl.driving.machine import Happening, Work
from jupyter_ddl.protocol.events import Event, FoldFinished, StopRequested, TrialCreated
from jupyter_ddl.protocol.fit import DropOutputs
from jupyter_ddl.protocol.requests import FitBody
from jupyter_ddl.store.processes import ProcessIdentity

__all__ = [
    "DropAll",
    "FitAsked",
    "FitEvent",
    "ImportModules",
    "LookAtClient",
    "ReadPast",
    "past_of_fit",
]


class FitAsked(msgspec.Struct, frozen=True):
    """The kernel asks for something; :class:`Reply` or :class:`Refuse` follows, exactly one."""

    request: int
    body: FitBody


class ReadPast(Work, frozen=True):
    """Read what the sessions before have recorded; the answer is what :func:`past_of_fit` keeps."""


class ImportModules(Work, frozen=True):
    """Have workers import modules before they fork ranks."""

    workers: tuple[str, ...]
    imports: tuple[str, ...]


class DropAll(Work, frozen=True):
    """Remove all outputs that the run has on the hosts of these workers."""

    workers: tuple[str, ...]
    message: DropOutputs


class LookAtClient(Work, frozen=True):
    """See whether the process that feeds is alive; the answer says so."""

    client: ProcessIdentity | None
    silent_s: float
    """How long nothing has been heard of it."""


FitEvent: TypeAlias = Happening | FitAsked


def past_of_fit(events: Iterable[Event]) -> list[Event]:
    """What a session needs of the record of those before it: outcomes, and who was moved or left.

    Outcomes that may turn out better now are not among them.
    """
    kept: list[Event] = []
    for event in events:
        match event:
            case FoldFinished(is_lost=is_lost, has_raised=has_raised):
                if not is_lost and not has_raised:
                    kept.append(event)
            case TrialCreated() | StopRequested():
                kept.append(event)
    return kept
