"""What Tab offers on the lines of the magics."""

from __future__ import annotations

from typing import Any

from jupyter_ddl.magics.completion import offers
from jupyter_ddl.store.paths import ledger_path
from tests.leaks import Home

_CELL = """
acc = 0.5
model: dict = {}
report(step=epoch, val_acc=min(acc, 1.0), loss=1 - acc)
if acc == 0:
    pass
"""


class _OwnSampler:
    def ask(self, history: Any) -> None:
        """Propose nothing."""


def _offered(first_line: str, **names: Any) -> set[str]:
    return set(offers(first_line + _CELL, 0, first_line, names))


def test_the_verbs_come_first() -> None:
    assert {"search", "map", "ddp"} <= _offered("%%distribute ")


def test_options_follow_a_verb_and_choices_follow_an_option() -> None:
    assert "--trials" in _offered("%%distribute search --metric x --")
    assert "--over" in _offered("%%distribute map --")
    assert "--trials" not in _offered("%%distribute map --")
    assert _offered("%%distribute search --pruner ") == {"none", "median", "asha", "hyperband"}
    assert _offered("%%distribute search --pruner=me") == {"none", "median", "asha", "hyperband"}


def test_ddp_offers_its_options_backends_and_strategies() -> None:
    assert {"--min-ranks", "--no-init", "-n"} <= _offered("%%distribute ddp -n 2 --")
    assert _offered("%%distribute ddp --backend ") == {"auto", "gloo", "nccl"}
    assert {"ddp", "fsdp"} <= _offered("%%distribute ddp --strategy ")
    assert "--rank" in _offered("%runs logs last --")


def test_metrics_are_the_keywords_of_report_in_the_cell() -> None:
    assert _offered("%%distribute search --metric ") == {"val_acc", "loss"}


def test_names_to_bring_are_those_that_the_cell_assigns() -> None:
    assert _offered("%%distribute search --bring ") == {"acc", "model"}


def test_notebook_values_are_offered_where_they_fit() -> None:
    names = {"space": {"lr": 1}, "items": [1, 2], "mine": _OwnSampler(), "text": "x", "_h": {}}
    assert _offered("%%distribute search --space ", **names) == {"space"}
    assert _offered("%%distribute map --over ", **names) == {"space", "items"}
    samplers = _offered("%%distribute search --sampler ", **names)
    assert {"tpe", "mine"} <= samplers
    assert "items" not in samplers


def test_below_the_first_line_python_completes_itself() -> None:
    text = "x = 1\n%%distribute search --"
    assert tuple(offers(text, 1, "%%distribute search --", {})) == ()
    assert tuple(offers("dist", 0, "dist", {})) == ()


def test_clusters_and_runs_offer_their_commands(home: Home) -> None:
    assert {"start", "stop", "adapt", "connect"} <= _offered("%cluster ")
    assert {"local", "--idle-timeout"} <= _offered("%cluster start ")
    assert {"check", "sync", "--all"} <= _offered("%cluster env ")
    assert {"show", "compare"} <= _offered("%runs ")


def test_run_ids_are_those_on_disk(home: Home) -> None:
    ledger_path("r1-abc").parent.mkdir(parents=True)
    ledger_path("r1-abc").touch()
    assert {"r1-abc", "last"} <= _offered("%runs show ")
    assert _offered("%%distribute search --resume ") == {"r1-abc", "last"}
