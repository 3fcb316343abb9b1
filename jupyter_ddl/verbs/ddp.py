"""``ddp``: one rank group that trains data-parallel."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from jupyter_ddl.protocol.group import CollectiveBackend
from jupyter_ddl.protocol.verb import Capabilities, RankNeeds, VerbSpec

__all__ = ["Ddp"]


class Ddp(VerbSpec, frozen=True, tag="ddp"):
    """One rank group that trains data-parallel: trial 0, whose attempts are the group's rounds."""

    can: ClassVar[Capabilities] = Capabilities(
        has_ranks=True, stops=("epoch", "next_report", "now"), brings="ranks"
    )

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

    @property
    def ranks(self) -> RankNeeds:
        return RankNeeds(
            n_ranks=self.n_ranks,
            n_fewest=self.min_ranks or self.n_ranks,
            gpus_per_rank=self.gpus_per_rank or 0,
            gpus_undecided=self.gpus_per_rank is None,
            is_group=True,
            backend=self.backend,
            initialize=self.initialize,
            strategy=self.strategy,
            hang_timeout_s=self.hang_timeout_s,
            resize_after_s=self.resize_after_s,
            gpus_option=gpus_option(self.backend, self.gpus_per_rank or 0),
        )

    @property
    def imports(self) -> tuple[str, ...]:
        return ("torch",)  # the group is made with it, whatever the cell imports

    def admitted(self, *, n_slots: int, gpus_per_rank: int) -> Ddp:
        if self.gpus_per_rank is not None:
            return self
        return msgspec.structs.replace(self, gpus_per_rank=gpus_per_rank)

    def group_text(self, max_failures: int) -> str:
        least = f", at least {self.min_ranks}" if self.min_ranks else ""
        gpus = f", {self.gpus_per_rank} GPUs each" if self.gpus_per_rank else ""
        restarts = max_failures - 1
        return (
            f"{self.n_ranks}{least}{gpus}; {self.strategy} over {self.backend}, "
            f"at most {restarts} {'restart' if restarts == 1 else 'restarts'}"
        )


def gpus_option(backend: CollectiveBackend, gpus_per_rank: int) -> str:
    """What on the line of a rank group asks for GPUs."""
    if backend != "nccl":
        return f"--gpus-per-rank {gpus_per_rank}"
    return "--backend nccl" + ("" if gpus_per_rank == 1 else f" --gpus-per-rank {gpus_per_rank}")
