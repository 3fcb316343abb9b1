"""``run``: cells on the ranks of a group that keeps their variables."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from jupyter_ddl.protocol.group import CollectiveBackend
from jupyter_ddl.protocol.verb import Capabilities, Driver, Nouns, RankNeeds, VerbSpec
from jupyter_ddl.verbs.ddp import gpus_option

__all__ = ["CellGroup"]


class CellGroup(VerbSpec, frozen=True, tag="run"):
    """A persistent group: ranks that keep their namespace between the cells they are given."""

    can: ClassVar[Capabilities] = Capabilities(has_cells=True, can_resume=False, brings="ranks")
    nouns: ClassVar[Nouns] = Nouns(trial="cell", trials="cells")
    driver: ClassVar[Driver] = "cells"

    n_ranks: int | None = None
    """None: one for every slot that is free; the record has the number."""
    backend: CollectiveBackend = "auto"
    gpus_per_rank: int | None = None
    """None: one each, where the workers have as many; the record has the number."""
    initialize: bool = True
    """Whether torch's process group is initialised, where torch is installed."""
    name: str = "default"
    """A cluster has one group of a name."""

    @property
    def n_trials(self) -> int:
        return 0

    @property
    def ranks(self) -> RankNeeds:
        n_ranks = self.n_ranks or 1
        return RankNeeds(
            n_ranks=n_ranks,
            n_fewest=n_ranks,
            gpus_per_rank=self.gpus_per_rank or 0,
            gpus_undecided=self.gpus_per_rank is None,
            is_group=n_ranks > 1,
            backend=self.backend,
            initialize=self.initialize,
            gpus_option=gpus_option(self.backend, self.gpus_per_rank or 0),
        )

    def admitted(self, *, n_slots: int, gpus_per_rank: int) -> CellGroup:
        if self.gpus_per_rank is not None:
            return self
        return msgspec.structs.replace(self, gpus_per_rank=gpus_per_rank)
