"""Every verb that is built in keeps what is expected of one, and so does one of another package."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_ddl.errors import OptionError
from jupyter_ddl.formats import format_count
from jupyter_ddl.ledger.reducer import RunState, fold
from jupyter_ddl.ledger.snapshots import snapshot_of
from jupyter_ddl.plugins import VERBS
from jupyter_ddl.protocol.events import RunSubmitted
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.protocol.verb import load_verb
from jupyter_ddl.testing.verbs import Example, VerbContract
from jupyter_ddl.verbs.base import parse_line
from jupyter_ddl.views.text import render_line, render_text
from tests.contract.test_recipes import write

EXAMPLES = {
    "search": Example(
        "search --metric acc --trials 5", "x = uniform(0, 1)\nreport(step=0, acc=x)\n"
    ),
    "map": Example("map --over x in numbers", "x + 1\n", {"numbers": [1, 2, 3]}),
    "ddp": Example("ddp -n 2 --min-ranks 1", "x = 1\n"),
    "fit": Example("fit --memory 2GB", "x = 1\n"),
    "run": Example("run -n 2 -t 1", "x = 1\n"),
}


class TestVerbs(VerbContract):
    @pytest.fixture(params=VERBS.built_in)
    def example(self, request: pytest.FixtureRequest) -> Example:
        return EXAMPLES[request.param]


class TestVerbOfAnotherPackage(VerbContract):
    """Nothing but its folder tells of it; nothing in the package knows its name."""

    @pytest.fixture(autouse=True)
    def installed(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        write("echo", tmp_path)
        monkeypatch.syspath_prepend(str(tmp_path))

    @pytest.fixture
    def example(self) -> Example:
        return Example("echo --times 3 --max-parallel 2", "x = 1\n")

    def test_views_speak_its_words(self, spec: RunSpec) -> None:
        state = RunState()
        fold(state, RunSubmitted(spec=spec, at_s=1.0))
        shown = snapshot_of(state, 2.0)
        assert f"0 of {format_count(3)} echoes" in render_text(shown, 2.0)
        assert "0/3" in render_line(shown, 2.0)

    def test_a_misspelt_word_is_told_its_name(self) -> None:
        with pytest.raises(OptionError, match=r"unknown verb 'ehco'.* did you mean 'echo'"):
            parse_line("ehco")


def test_without_its_package_its_runs_say_what_is_missing() -> None:
    load_verb.cache_clear()
    assert "echo" not in VERBS.names()
    with pytest.raises(
        OptionError, match="'echo' is not a verb; known: search, map, ddp, fit, run"
    ):
        load_verb("echo")
