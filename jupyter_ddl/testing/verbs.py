"""What every verb keeps, as tests that the author of one runs.

::

    class TestMine(VerbContract):
        @pytest.fixture
        def example(self):
            return Example("mine --times 3", "x = 1\\n")
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jupyter_ddl.cell.draft import CellContext, RunDraft
from jupyter_ddl.errors import OptionError
from jupyter_ddl.ledger.reducer import RunState, fold
from jupyter_ddl.ledger.snapshots import snapshot_of
from jupyter_ddl.protocol.events import RunSubmitted
from jupyter_ddl.protocol.run import Provenance, RunSpec
from jupyter_ddl.protocol.verb import VerbSpec, load_verb
from jupyter_ddl.verbs.base import Line, Verb, distribute_grammar, find_verb, parse_line

__all__ = ["Example", "VerbContract"]


@dataclass(frozen=True)
class Example:
    """A line, a cell below it, and the notebook that they stand in."""

    line: str
    cell: str
    namespace: dict[str, Any] = field(default_factory=dict)


class VerbContract:
    """Subclass it, and override the fixture ``example``."""

    @pytest.fixture
    def example(self) -> Example:
        """A line and a cell that make a run."""
        raise NotImplementedError("override the fixture `example`")

    @pytest.fixture
    def line(self, example: Example) -> Line[Verb]:
        return parse_line(example.line)

    @pytest.fixture
    def draft(self, example: Example, line: Line[Verb], tmp_path: Path) -> RunDraft:
        context = CellContext(cell_number=3, notebook_dir=tmp_path)
        return line.verb.compile(example.cell, example.namespace, context, line.options)

    @pytest.fixture
    def spec(self, draft: RunDraft) -> RunSpec:
        """The run as a cluster of two slots takes it."""
        made = draft.submitted("r1", "local", Provenance())
        verb = made.verb.admitted(n_slots=2, gpus_per_rank=0)
        return msgspec.structs.replace(made, verb=verb)

    def test_its_word_finds_it(self, line: Line[Verb], example: Example) -> None:
        verb = type(line.verb)
        assert line.verb.word == example.line.split()[0]
        assert load_verb(line.verb.word) is find_verb(line.verb.word) is verb

    def test_help_says_what_it_is_for_and_lists_its_options(self, line: Line[Verb]) -> None:
        text = distribute_grammar().help_text(line.verb.word)
        assert type(line.verb).purpose in " ".join(text.split())
        flags = distribute_grammar().offers([line.verb.word], {})
        assert [flag for flag in flags if flag.startswith("--") and flag not in text] == []

    def test_a_keyword_that_is_no_option_is_refused(self, line: Line[Verb]) -> None:
        with pytest.raises(OptionError, match="there is no option 'nonsense'; known:"):
            type(line.verb).from_python({"nonsense": 1})

    def test_its_run_survives_the_way_to_the_controller(self, spec: RunSpec) -> None:
        for encode, decode in (
            (msgspec.msgpack.encode, msgspec.msgpack.decode),
            (msgspec.json.encode, msgspec.json.decode),
        ):
            arrived: RunSpec = decode(encode(spec), type=RunSpec)
            assert arrived == spec
            assert type(arrived.verb) is type(spec.verb)

    def test_what_is_fixed_at_submission_is_fixed_once(self, spec: RunSpec) -> None:
        assert spec.verb.admitted(n_slots=64, gpus_per_rank=1) == spec.verb
        assert not spec.verb.ranks.gpus_undecided

    def test_it_can_what_its_parts_say(self, spec: RunSpec) -> None:
        verb = spec.verb
        assert verb.can.has_objective == (verb.objective is not None)
        assert verb.study is None or verb.can.has_objective
        assert verb.items is None or verb.can.has_items
        assert verb.can.has_trials or verb.can.has_ranks or verb.can.has_cells
        assert not verb.can.has_ranks or verb.ranks.is_group
        assert not verb.can.has_cells or not verb.can.can_resume
        assert {"next_report", "now"} <= set(verb.can.stops)
        assert 1 <= verb.ranks.n_fewest <= verb.ranks.n_ranks

    def test_its_snapshot_tells_views_all_that_they_ask(self, spec: RunSpec) -> None:
        state = RunState()
        fold(state, RunSubmitted(spec=spec, at_s=1.0))
        shown = snapshot_of(state, 2.0)
        assert (shown.verb, shown.can, shown.nouns) == (
            spec.verb.word,
            spec.verb.can,
            spec.verb.nouns,
        )
        assert shown.n_trials == spec.n_trials

    def test_a_dry_run_can_be_told(self, draft: RunDraft) -> None:
        assert all("\n" not in text for text in draft.spec.verb.describe())
        assert isinstance(draft.spec.verb, VerbSpec)
