"""What a run is to do: a verb under a common header."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from jupyter_ddl.errors import JupyterDDLError
from jupyter_ddl.protocol.facts import EnvironmentStatus
from jupyter_ddl.protocol.prices import Budget, Prices
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.protocol.telemetry import Finite
from jupyter_ddl.protocol.verb import VerbSpec, read_verb

__all__ = ["Limits", "Provenance", "RunSpec"]

if TYPE_CHECKING:
    AnyVerb: TypeAlias = VerbSpec
else:
    AnyVerb = dict[str, Any]  # read as plain fields first: a union would have to know all verbs


class Limits(msgspec.Struct, frozen=True):
    """When to give up.  Machine losses and the code's own failures have separate budgets."""

    timeout_s: float | None = None
    max_own_failures: int = 3
    max_evictions: int = 50
    """In a row: one behind a further step or checkpoint is counted from 1 again."""
    stop_grace_s: float = 5.0
    admission_timeout_s: float | None = None
    """How long a rank group waits for slots; None: while other runs use them, and 10 minutes for
    slots that are missing or kept by persistent groups."""
    budget: Budget | msgspec.UnsetType = msgspec.UNSET
    """What it may cost or hold, over all sessions; unset: as much as it takes."""


class Provenance(msgspec.Struct, frozen=True):
    """Where a run comes from: enough to run it again and to compare two runs."""

    line: str = ""
    """The magic's first line, which runs it again."""
    cell: str = ""
    """The cell's body as the user typed it."""
    notebook: str | None = None
    user: str = ""
    host: str = ""
    python: str = ""
    packages: dict[str, str] = {}
    git_revision: str | None = None
    git_dirty: bool = False
    environment: EnvironmentStatus | None = None
    """What the comparison of the kernel with the workers came to; None where there was none."""
    image: str = ""
    """What the workers' image was resolved to, with its digest; empty where they run in none."""


class RunSpec(msgspec.Struct, frozen=True):
    """One execution of a cell: the first record of its ledger."""

    run_id: str
    verb: AnyVerb
    program: Program
    seed: int
    cluster: str
    created_at_s: Finite
    """Unix seconds."""
    name: str = ""
    folder: str = ""
    """Where the kernel was when it was submitted; ranks that see this folder work in it."""
    bring: tuple[str, ...] = ()
    """Names whose values come back: the best trial's (search) or every item's (map)."""
    bring_files: tuple[str, ...] = ()
    """Patterns of files that come back while it goes on, from workers with files of their own."""
    warm: tuple[str, ...] = ()
    """Packages that zygotes import before they fork its ranks, so that no rank has to."""
    isolate: bool = False
    """A fresh process for every trial, even for short ones."""
    limits: Limits = Limits()
    provenance: Provenance = Provenance()
    tensorboard: bool = False
    """Whether its scalars are written as event files while it goes on."""
    profile: int | msgspec.UnsetType = msgspec.UNSET
    """Steps of each rank that torch's profiler records; unset: none."""
    prices: Prices | msgspec.UnsetType = msgspec.UNSET
    """The table when it was submitted; unset: there was none, and nothing tells what it costs."""

    def __post_init__(self) -> None:
        """Find the verb's class by its tag: which verbs there are is known when they are wanted."""
        found: Any = self.verb
        if isinstance(found, dict):
            try:
                msgspec.structs.force_setattr(self, "verb", read_verb(found))
            except JupyterDDLError as error:
                raise ValueError(error.message) from None  # the decoder says where it stands

    @property
    def n_trials(self) -> int:
        """Number of trials that this run consists of; 0 where it is fed."""
        return self.verb.n_trials or 0

    @property
    def is_grouped(self) -> bool:
        """Whether its trials are rank groups that must be started together."""
        return self.verb.ranks.is_group

    @property
    def n_ranks(self) -> int:
        """Ranks of each of its groups; 1 unless trials are distributed themselves."""
        return self.verb.ranks.n_ranks

    @property
    def gpus_per_rank(self) -> int:
        """Whole GPUs of each rank."""
        return self.verb.ranks.gpus_per_rank
