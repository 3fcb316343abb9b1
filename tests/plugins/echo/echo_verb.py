"""``echo``: the cell several times.  A package of its own, as another author would write it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from jupyter_ddl.cell.draft import CellContext, RunDraft, draft_run, program_of
from jupyter_ddl.cell.names import read_names
from jupyter_ddl.cell.options import COMMON, MANY_TRIALS, CellOptions
from jupyter_ddl.cell.parts import CellParts
from jupyter_ddl.cell.source import read_source
from jupyter_ddl.grammar import Argument, Group, argument, count
from jupyter_ddl.protocol.verb import Capabilities, Nouns
from jupyter_ddl.verbs.base import Verb


class Echo(Verb, frozen=True, tag="echo"):
    """The cell several times; what it brings comes home of every time."""

    purpose: ClassVar[str] = "Run the cell several times."
    arguments: ClassVar[tuple[Argument | Group, ...]] = (
        argument("--times", type=count(1), default=2, metavar="N", help="default 2"),
        *COMMON,
        *MANY_TRIALS,
    )
    can: ClassVar[Capabilities] = Capabilities(has_trials=True, brings="items")
    nouns: ClassVar[Nouns] = Nouns(trial="echo", trials="echoes")

    times: int = 2

    @property
    def n_trials(self) -> int:
        return self.times

    def compile(
        self, cell: str, namespace: Mapping[str, Any], context: CellContext, options: CellOptions
    ) -> RunDraft:
        source = read_source(cell, context.cell_number)
        parts = CellParts.of(options, source, read_names(source.tree), namespace, context)
        captured, modules = parts.gather(known=(), injected=(), also=())
        program, blobs = program_of(source, captured, modules)
        return draft_run(self, options, program, blobs, max_failures=options.max_failures)

    def describe(self) -> Iterator[str]:
        yield f"Echo: {self.times} times"
