"""``fit``: the cell runs in the kernel, its scikit-learn fits on the cluster."""

from __future__ import annotations

from typing import ClassVar

from jupyter_ddl.protocol.sampling import Mode
from jupyter_ddl.protocol.verb import Capabilities, Driver, Nouns, VerbSpec

__all__ = ["Fit"]


class Fit(VerbSpec, frozen=True, tag="fit"):
    """Searches and other parallel fits of a cell: the kernel feeds them while the cell runs."""

    can: ClassVar[Capabilities] = Capabilities(has_trials=True, has_objective=True)
    nouns: ClassVar[Nouns] = Nouns(step="done", total="tasks")
    driver: ClassVar[Driver] = "fits"

    client_pid: int
    client_started_at_s: float
    client_boot_id: str
    """The process that feeds: when it is gone, the run ends with what it was fed."""
    metric: str = "score"
    mode: Mode = "max"
    memory_bytes: int | None = None
    """Outputs of prefixes that a host keeps in memory; None: a quarter of its memory."""

    @property
    def n_trials(self) -> None:
        return None

    @property
    def objective(self) -> Fit:
        return self
