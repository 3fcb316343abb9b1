"""``fit``: the cell runs in the kernel, its scikit-learn fits on the cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from jupyter_ddl.cell.draft import CellContext, RunDraft, draft_run
from jupyter_ddl.cell.options import (
    BRING_FILES,
    BUDGET,
    CAPTURE_LIMIT,
    ENV_CHECK,
    MAX_PARALLEL,
    NAME,
    OUT,
    SEED,
    TIMEOUT,
    CellOptions,
)
from jupyter_ddl.cell.source import filename_of
from jupyter_ddl.grammar import Argument, Group, argument, size_bytes
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.protocol.sampling import Mode
from jupyter_ddl.protocol.verb import Capabilities, Driver, Nouns
from jupyter_ddl.store.processes import ProcessIdentity
from jupyter_ddl.verbs.base import Verb

__all__ = ["Fit"]


class Fit(Verb, frozen=True, tag="fit"):
    """Searches and other parallel fits of a cell: the kernel feeds them while the cell runs."""

    purpose: ClassVar[str] = (
        "Run the cell here and its scikit-learn fits on the cluster, each prefix once."
    )
    arguments: ClassVar[tuple[Argument | Group, ...]] = (
        OUT,
        NAME,
        BRING_FILES,
        TIMEOUT,
        BUDGET,
        argument(
            "--resume",
            metavar="RUN",
            help="reuse what a run has computed; compute the rest",
            offers="runs",
        ),
        MAX_PARALLEL,
        argument(
            "--memory",
            dest="memory_bytes",
            type=size_bytes,
            metavar="2GB",
            help="memory per host for shared transformed data; default: a quarter of the host's",
        ),
        CAPTURE_LIMIT,
        SEED,
        ENV_CHECK,
    )
    can: ClassVar[Capabilities] = Capabilities(has_trials=True, has_objective=True)
    nouns: ClassVar[Nouns] = Nouns(step="done", total="tasks")
    driver: ClassVar[Driver] = "fits"

    client: ProcessIdentity | None = None
    """The process that feeds: when it is gone, the run ends with what it was fed."""
    metric: str = "score"
    mode: Mode = "max"
    memory_bytes: int | None = None
    """Outputs of prefixes that a host keeps in memory; None: a quarter of its memory."""

    def compile(
        self, cell: str, namespace: Mapping[str, Any], context: CellContext, options: CellOptions
    ) -> RunDraft:
        """The record of a run that the cell will feed; nothing of the cell itself is sent."""
        number = context.cell_number
        program = Program("", "fit" if number is None else filename_of(number))
        # A candidate that has failed has done so in scikit-learn's own way: once and for all.
        return draft_run(self, options, program, max_failures=1)

    # -- what everybody asks -------------------------------------------------------------------

    @property
    def n_trials(self) -> None:
        return None

    @property
    def objective(self) -> Fit:
        return self
