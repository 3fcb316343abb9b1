"""``search``: hyper-parameters of a cell, proposed by a sampler and judged by a metric."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from jupyter_ddl.protocol.sampling import Mode, PrunerSpec, SamplerSpec
from jupyter_ddl.protocol.space import Distribution
from jupyter_ddl.protocol.verb import Capabilities, RankNeeds, VerbSpec

__all__ = ["Search"]


class Search(VerbSpec, frozen=True, tag="search"):
    """A hyper-parameter search: which trials, judged by which metric."""

    can: ClassVar[Capabilities] = Capabilities(
        has_trials=True,
        has_objective=True,
        stops=("keep_best", "epoch", "next_report", "now"),
        brings="best",
    )
    needs_all: ClassVar[bool] = False

    metric: str
    mode: Mode
    n_trials: int
    space: dict[str, Distribution]
    sampler: SamplerSpec = SamplerSpec()
    pruner: PrunerSpec = PrunerSpec()
    window: int | None = None
    """How far a sampler that learns may run ahead: trial n is asked when all up to n - window
    are told.  Set once by the controller and recorded: the trial list never depends on timing."""
    ranks_per_trial: int = 1
    gpus_per_trial: int = 0
    """Divided evenly among the trial's ranks."""

    @property
    def objective(self) -> Search:
        return self

    @property
    def study(self) -> Search:
        return self

    @property
    def ranks(self) -> RankNeeds:
        return RankNeeds(
            n_ranks=self.ranks_per_trial,
            n_fewest=self.ranks_per_trial,
            gpus_per_rank=self.gpus_per_trial // self.ranks_per_trial,
            is_group=self.ranks_per_trial > 1,
            ranks_option="--ranks-per-trial",
            gpus_option=f"--gpus-per-trial {self.gpus_per_trial}",
        )

    def admitted(self, *, n_slots: int, gpus_per_rank: int) -> Search:
        if self.window is not None:
            return self
        # Fixed, so that a resumed run asks in the same order.
        return msgspec.structs.replace(self, window=2 * (self.max_parallel or n_slots))

    def group_text(self, max_failures: int) -> str:
        return f"{self.ranks_per_trial} per trial" if self.ranks_per_trial > 1 else ""
