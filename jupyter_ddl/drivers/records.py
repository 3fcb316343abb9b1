"""A trial's state as samplers see it.  Pure."""

from __future__ import annotations

from typing import Literal

from jupyter_ddl.ledger.run_state import TrialState
from jupyter_ddl.protocol.sampling import TrialEnd, TrialRecord

__all__ = ["to_record"]


def to_record(trial: TrialState) -> TrialRecord:
    """``running`` for everything that has not ended."""
    state = trial.state
    ended: TrialEnd | Literal["running"]
    ended = "running" if state == "waiting" or state == "running" else state
    return TrialRecord(trial.number, trial.params, ended, trial.value, trial.step)
