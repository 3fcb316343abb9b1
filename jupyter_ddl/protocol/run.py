"""What a run is to do: one frozen spec per verb, under a common header."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from jupyter_ddl.protocol.facts import EnvironmentStatus
from jupyter_ddl.protocol.fit import FitSpec
from jupyter_ddl.protocol.group import CollectiveBackend
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.protocol.space import Distribution

__all__ = [
    "DdpSpec",
    "FitSpec",
    "GroupSpec",
    "Limits",
    "MapSpec",
    "Mode",
    "Provenance",
    "PrunerSpec",
    "RunSpec",
    "SamplerSpec",
    "SearchSpec",
    "Verb",
    "verb_name",
]

Mode: TypeAlias = Literal["max", "min"]


class SamplerSpec(msgspec.Struct, frozen=True):
    """Which sampler proposes parameters.

    ``name`` is one of ours (``grid``, ``random``, ``tpe``, ``cmaes``, ``gp``, ``qmc``, ``de``), or
    ``module:Class``, or the name of a captured notebook variable when ``in_notebook``.
    """

    name: str = "random"
    options: dict[str, bool | int | float | str | None] = {}
    in_notebook: bool = False


class PrunerSpec(msgspec.Struct, frozen=True):
    """Which pruner stops trials early (``none``, ``median``, ``asha``, ``hyperband``)."""

    name: str = "none"
    options: dict[str, bool | int | float | str | None] = {}


class SearchSpec(msgspec.Struct, frozen=True, tag="search"):
    """A hyper-parameter search: which trials, judged by which metric."""

    metric: str
    mode: Mode
    n_trials: int
    space: dict[str, Distribution]
    sampler: SamplerSpec = SamplerSpec()
    pruner: PrunerSpec = PrunerSpec()
    max_parallel: int | None = None
    """Trials in flight at once; None is the number of slots when the run starts."""
    window: int | None = None
    """How far a sampler that learns may run ahead: trial n is asked when all up to n - window
    are told.  Set once by the controller and recorded: the trial list never depends on timing."""
    ranks_per_trial: int = 1
    gpus_per_trial: int = 0
    """Divided evenly among the trial's ranks."""


class MapSpec(msgspec.Struct, frozen=True, tag="map"):
    """The cell once per element of a captured sequence, results in order."""

    over: str
    """Captured name of the sequence."""
    element: str
    """Name that the cell sees the element under."""
    n_items: int
    max_parallel: int | None = None


class DdpSpec(msgspec.Struct, frozen=True, tag="ddp"):
    """One rank group that trains data-parallel: trial 0, whose attempts are the group's rounds."""

    n_ranks: int
    min_ranks: int | None = None
    """With fewer slots than ``n_ranks`` the group goes on with those, down to this number."""
    backend: CollectiveBackend = "auto"
    gpus_per_rank: int | None = None
    """None: one each, where the workers have as many; the record of a run has the number."""
    hang_timeout_s: float | None = None
    """No step for so long is a hang; None: max(60 s, 10 × the median step)."""
    resize_after_s: float = 5.0
    """With ``min_ranks``: how long to wait for slots before going on with fewer, or more, ranks."""
    strategy: str = "ddp"
    initialize: bool = True
    max_parallel: int | None = None


class GroupSpec(msgspec.Struct, frozen=True, tag="run"):
    """A persistent group: ranks that keep their namespace between the cells they are given."""

    n_ranks: int | None = None
    """None: one for every slot that is free; the record has the number."""
    backend: CollectiveBackend = "auto"
    gpus_per_rank: int | None = None
    """None: one each, where the workers have as many; the record has the number."""
    initialize: bool = True
    """Whether torch's process group is initialised, where torch is installed."""
    name: str = "default"
    """A cluster has one group of a name."""
    max_parallel: int | None = None


Verb: TypeAlias = SearchSpec | MapSpec | DdpSpec | GroupSpec | FitSpec


def verb_name(verb: Verb) -> Literal["search", "map", "ddp", "run", "fit"]:
    """The word behind ``%%distribute``."""
    match verb:
        case SearchSpec():
            return "search"
        case MapSpec():
            return "map"
        case DdpSpec():
            return "ddp"
        case GroupSpec():
            return "run"
        case FitSpec():
            return "fit"


class Limits(msgspec.Struct, frozen=True):
    """When to give up.  Machine losses and the code's own failures have separate budgets."""

    timeout_s: float | None = None
    max_own_failures: int = 3
    max_evictions: int = 50
    stop_grace_s: float = 5.0
    admission_timeout_s: float | None = None
    """How long a rank group waits for slots; None: while other runs use them, and 10 minutes for
    slots that are missing or kept by persistent groups."""


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
    verb: Verb
    program: Program
    seed: int
    cluster: str
    created_at_s: float
    """Unix seconds."""
    name: str = ""
    bring: tuple[str, ...] = ()
    """Names whose values come home: the best trial's (search) or every item's (map)."""
    isolate: bool = False
    """A fresh process for every trial, even for short ones."""
    limits: Limits = Limits()
    provenance: Provenance = Provenance()
    tensorboard: bool = False
    """Whether its scalars are written as event files while it goes on."""

    @property
    def n_trials(self) -> int:
        """Number of trials this run consists of: items of a map, 1 for a rank group."""
        match self.verb:
            case SearchSpec(n_trials=number) | MapSpec(n_items=number):
                return number
            case DdpSpec():
                return 1
            case GroupSpec() | FitSpec():
                return 0

    @property
    def judged(self) -> SearchSpec | FitSpec | None:
        """The verb, where trials have an objective; None where they have none."""
        return self.verb if isinstance(self.verb, SearchSpec | FitSpec) else None

    @property
    def is_grouped(self) -> bool:
        """Whether its trials are rank groups that must be started together."""
        return isinstance(self.verb, DdpSpec) or self.n_ranks > 1

    @property
    def n_ranks(self) -> int:
        """Ranks of each of its groups; 1 unless trials are distributed themselves."""
        match self.verb:
            case SearchSpec(ranks_per_trial=number) | DdpSpec(n_ranks=number):
                return number
            case MapSpec() | FitSpec():
                return 1
            case GroupSpec(n_ranks=n_ranks):
                return n_ranks or 1

    @property
    def gpus_per_rank(self) -> int:
        """Whole GPUs of each rank."""
        match self.verb:
            case SearchSpec(gpus_per_trial=number, ranks_per_trial=n_ranks):
                return number // n_ranks
            case DdpSpec(gpus_per_rank=n_gpus) | GroupSpec(gpus_per_rank=n_gpus):
                return n_gpus or 0
            case _:
                return 0
