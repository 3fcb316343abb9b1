"""What a study answers when it is asked for the next trial."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from jupyter_ddl.spec.sampling import TrialRecord
from jupyter_ddl.spec.space import ParamValue

__all__ = ["Exhausted", "NeedsRemoteAsk", "NextTrial", "Proposal", "Wait"]

_SHOWN = 5


class Proposal(msgspec.Struct, frozen=True):
    """A new trial."""

    number: int
    params: dict[str, ParamValue]


class Wait(msgspec.Struct, frozen=True):
    """No proposal before these trials have ended (none: before ``supply`` is called)."""

    trials: tuple[int, ...]

    @property
    def text(self) -> str:
        """What the study waits for, for people."""
        if not self.trials:
            return "waiting for the sampler"
        shown = ", ".join(map(str, self.trials[:_SHOWN]))
        more = len(self.trials) - _SHOWN
        noun = "trial" if len(self.trials) == 1 else "trials"
        return f"waiting for {noun} {shown}" + (f" and {more} more" if more > 0 else "")


class NeedsRemoteAsk(msgspec.Struct, frozen=True):
    """Ask the sampler's process: tell it ``tells`` in order, ask it, and ``supply`` the answer."""

    number: int
    tells: tuple[TrialRecord, ...]
    replayed: bool = False
    """The trial is known already: the sampler only has to get into the state it had."""


class Exhausted(msgspec.Struct, frozen=True):
    """There will be no further trial."""

    reason: str


NextTrial: TypeAlias = Proposal | Wait | NeedsRemoteAsk | Exhausted
