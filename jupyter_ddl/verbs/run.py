"""``run``: cells on the ranks of a group that keeps their variables."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from jupyter_ddl.cell.draft import CellContext, RunDraft, draft_run
from jupyter_ddl.cell.options import BRING_FILES, ENV_CHECK, CellOptions
from jupyter_ddl.grammar import Argument, Group, argument, count, identifier, names, one_of
from jupyter_ddl.protocol.group import CollectiveBackend
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.protocol.verb import Capabilities, Driver, Nouns, RankNeeds
from jupyter_ddl.verbs.base import Verb
from jupyter_ddl.verbs.ddp import BACKENDS, gpus_option

__all__ = ["DEFAULT_GROUP", "CellGroup", "read_ranks"]

DEFAULT_GROUP = "default"
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


def read_ranks(text: str) -> tuple[int, ...] | None:
    """Ranks in ``1``, ``0,2`` or ``0-3,6``; None for ``all``."""
    if text.strip() == "all":
        return None
    found: set[int] = set()
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        low, high = (match[1], match[2] or match[1]) if match else ("", "")
        if match is None or int(low) > int(high) or int(high) >= 100_000:
            raise argparse.ArgumentTypeError(f"{text!r}; expected ranks, e.g. 1, 0,2 or 0-3")
        found.update(range(int(low), int(high) + 1))
    return tuple(sorted(found))


class CellGroup(Verb, frozen=True, tag="run"):
    """A persistent group: ranks that keep their namespace between the cells they are given."""

    purpose: ClassVar[str] = (
        "Run the cell on the ranks of a group that keeps its variables between cells."
    )
    arguments: ClassVar[tuple[Argument | Group, ...]] = (
        argument(
            "-n", "--ranks", dest="n_ranks", type=count(1), metavar="N", help="size of a new group"
        ),
        argument(
            "-t",
            "--targets",
            type=read_ranks,
            metavar="RANKS",
            help="ranks that execute the cell, e.g. 0,2; default: all",
        ),
        argument(
            "--push",
            type=names,
            default=(),
            metavar="A,B",
            help="variables to send first; auto: those that the cell reads and the ranks lack",
            offers="names",
        ),
        argument(
            "--bring",
            type=names,
            default=(),
            metavar="A,B",
            help="variables to bring back, from the first rank",
            offers="assigned",
        ),
        argument(
            "-o",
            "--out",
            type=identifier,
            metavar="NAME",
            help="bind the results of all ranks to this name",
        ),
        argument(
            "--name",
            default=DEFAULT_GROUP,
            metavar="TEXT",
            help="name of a group other than the default one",
        ),
        argument("--backend", type=one_of(*BACKENDS), default="auto"),
        argument(
            "--gpus-per-rank",
            type=count(0),
            metavar="N",
            help="of a new group; default: 1 if the workers have enough, else 0",
        ),
        argument(
            "--no-init",
            dest="initialize",
            action="store_false",
            help="do not initialise torch.distributed in a new group",
        ),
        argument("--reset", action="store_true", help="replace the group; its variables are lost"),
        BRING_FILES,
        ENV_CHECK,
    )
    can: ClassVar[Capabilities] = Capabilities(has_cells=True, can_resume=False, brings="ranks")
    nouns: ClassVar[Nouns] = Nouns(trial="cell", trials="cells")
    driver: ClassVar[Driver] = "cells"

    n_ranks: int | None = None
    """None: of the open group, or one for every slot that is free; the record has the number."""
    backend: CollectiveBackend = "auto"
    gpus_per_rank: int | None = None
    """None: one each, where the workers have as many; the record has the number."""
    initialize: bool = True
    """Whether torch's process group is initialised, where torch is installed."""
    name: str = DEFAULT_GROUP
    """A cluster has one group of a name."""
    targets: tuple[int, ...] | None = None
    """Of one cell: the ranks that execute it; None: all."""
    reset: bool = False
    """Of one cell: whether the open group ends first."""

    def compile(
        self, cell: str, namespace: Mapping[str, Any], context: CellContext, options: CellOptions
    ) -> RunDraft:
        """The record of a new group; each of its cells is compiled by ``cell.group_cell``."""
        verb = msgspec.structs.replace(self, targets=None, reset=False)
        named = msgspec.structs.replace(
            options, seed=0, name="" if self.name == DEFAULT_GROUP else self.name
        )
        return draft_run(verb, named, Program("", ""), max_failures=options.max_failures)

    # -- what everybody asks -------------------------------------------------------------------

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

    @property
    def imports(self) -> tuple[str, ...]:
        return ("torch",) if self.initialize else ()

    def admitted(self, *, n_slots: int, gpus_per_rank: int) -> CellGroup:
        if self.gpus_per_rank is not None:
            return self
        return msgspec.structs.replace(self, gpus_per_rank=gpus_per_rank)
