"""What plots need of a run's record."""

from __future__ import annotations

from typing import NamedTuple

from jupyter_ddl.errors import OptionError
from jupyter_ddl.ledger.run_state import RunState, TrialState
from jupyter_ddl.protocol.run import RunSpec

__all__ = ["PlottedRun", "value_of"]

_RESULTS = ("complete", "pruned", "running")
"""Only of these a value is a result."""


class PlottedRun(NamedTuple):
    """One run, by the name that it has in a plot."""

    name: str
    spec: RunSpec
    state: RunState

    @property
    def metric(self) -> str:
        """What trials are judged by.

        Raises
        ------
        OptionError
            Nothing: it is no search.
        """
        objective = self.spec.verb.objective
        if objective is None:
            raise OptionError(
                f"run {self.spec.run_id} ({self.spec.verb.word}) has no objective to plot; "
                f"run.plot.curves() shows what it has reported"
            )
        return str(objective.metric)

    def trials(self) -> list[TrialState]:
        """Those that have a result, by number."""
        trials = self.state.trials
        return [trials[n] for n in sorted(trials) if trials[n].state in _RESULTS]


def value_of(trial: TrialState) -> float | None:
    """Its objective: of one that has not ended, the last that it has reported."""
    return trial.objective if trial.value is None else trial.value
