"""Notebook and terminal have the same commands, which do and say the same."""

from __future__ import annotations

import inspect
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
from IPython.core.error import UsageError

from jupyter_ddl.cli.main import main
from jupyter_ddl.commands.cluster import CLUSTER, form_of, own_options
from jupyter_ddl.commands.runs import RUNS
from jupyter_ddl.errors import OptionError
from jupyter_ddl.grammar import Command
from jupyter_ddl.ledger.writer import LedgerWriter
from jupyter_ddl.magics.face import carry_out
from jupyter_ddl.plugins import BACKENDS
from jupyter_ddl.protocol.events import (
    AttemptFinished,
    AttemptStarted,
    RunFinished,
    RunStarted,
    RunSubmitted,
    TrialCreated,
)
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.protocol.space import Uniform
from jupyter_ddl.store.paths import ledger_path, run_dir
from jupyter_ddl.verbs.search import Search
from tests.leaks import Home

_GRAMMARS = {"cluster": CLUSTER, "runs": RUNS}
_EVERY = [
    (noun, command) for noun, grammar in _GRAMMARS.items() for command in grammar.commands.values()
]


def _needed(command: Command) -> list[str]:
    """A value for each word that has to be given."""
    words = [each for each in command.each() if not each.is_option]
    return ["1" for each in words if each.settings.get("nargs") not in ("?", "*")]


def _no(question: str, default: str) -> bool:
    return False


def _notebook(noun: str, line: str) -> None:
    carry_out(Namespace(user_ns={}, push=lambda names: None, ask_yes_no=_no), noun, line)


@pytest.mark.parametrize(("noun", "command"), _EVERY, ids=lambda each: getattr(each, "name", each))
def test_the_terminal_has_each_command_with_the_same_options(noun: str, command: Command) -> None:
    terminal = _GRAMMARS[noun].in_terminal(f"jupyter ddl {noun}")
    assert terminal.commands.get(command.name) == (None if command.only_in_notebooks else command)


@pytest.mark.parametrize(("noun", "command"), _EVERY, ids=lambda each: getattr(each, "name", each))
def test_a_command_takes_what_it_declares(noun: str, command: Command) -> None:
    required = {"export": ["1", "file.html"], "env": []}.get(command.name, _needed(command))
    _, values = _GRAMMARS[noun].parse([command.name, *required])
    inspect.signature(command.call).bind(None, **values)


@pytest.mark.parametrize(("noun", "command"), _EVERY, ids=lambda each: getattr(each, "name", each))
def test_both_print_the_same_help(noun: str, command: Command, capsys: Any) -> None:
    _notebook(noun, f"{command.name} --help")
    in_notebook = capsys.readouterr().out
    assert in_notebook.startswith(f"usage: %{noun} {command.name}")
    status = main([noun, command.name, "--help"])
    if command.only_in_notebooks:
        assert status == 2
        return
    assert status == 0
    assert "--help" in in_notebook
    assert command.purpose in capsys.readouterr().out


_SPOKEN = "`%runs attach x` is what the user printed\n"


@pytest.fixture
def run_id(home: Home, monkeypatch: pytest.MonkeyPatch) -> str:
    """A run of long ago that has ended, and a terminal as wide as a cell's output."""
    monkeypatch.setenv("COLUMNS", "101")
    run_id = "r1-abc"
    study = Search("acc", "max", 1, {"lr": Uniform(0.0, 1.0)})
    spec = RunSpec(run_id, study, Program("x = 1", "In [3]"), 7, "local", 1000.0)
    (run_dir(run_id) / "logs").mkdir(parents=True)
    (run_dir(run_id) / "logs" / "a.log").write_text(_SPOKEN)
    with LedgerWriter.open(ledger_path(run_id), create=True) as ledger:
        ledger.append(
            [
                RunSubmitted(spec, 1000.0),
                RunStarted(1001.0, 1, 1, 1, 42),
                TrialCreated(0, {"lr": 0.5}, 1002.0),
                AttemptStarted(0, 1, 1002.0, "w", 77, "a.log", 0),
                AttemptFinished(0, 1, "complete", 1003.0, 1.0, 0.25),
                RunFinished(1009.0, "complete"),
            ]
        )
    return run_id


@pytest.mark.parametrize(
    ("noun", "line", "says"),
    [
        ("runs", "", "1 of 1"),
        ("runs", "list", "acc 0.25"),
        ("runs", "show last", "uniform(0, 1)"),
        ("runs", "logs r1", _SPOKEN),
        ("runs", "logs r1 --trial 0", _SPOKEN),
        ("runs", "compare r1 last", "The code is the same"),
        ("runs", "rm last", "Nothing was deleted"),
        ("runs", "rm last --yes", "Run r1-abc is deleted."),
        ("cluster", "", "No cluster is running; `%cluster start` starts one"),
        ("cluster", "list", "No cluster is running."),
        ("cluster", "stop --all", "No cluster is running."),
    ],
)
def test_both_say_the_same_each_in_its_own_words(
    run_id: str, noun: str, line: str, says: str, capsys: Any
) -> None:
    directory = run_dir(run_id)
    kept = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    _notebook(noun, line)
    in_notebook = capsys.readouterr().out
    for path, data in kept.items():  # `rm` is carried out twice, too
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    status = main([noun, *line.split()])
    in_terminal = capsys.readouterr().out
    assert says in in_notebook
    if _SPOKEN not in in_notebook:
        in_notebook = in_notebook.replace(f"%{noun}", f"jupyter ddl {noun}")
    assert in_terminal == in_notebook
    assert status == ("Nothing was deleted" in says)


def test_a_page_is_written_and_a_recording_is_not_replaced(
    run_id: str, tmp_path: Path, capsys: Any
) -> None:
    target = tmp_path / "demo.jsonl"
    assert main(["runs", "export", "last", str(target)]) == 0
    assert "facts of run" in capsys.readouterr().out
    assert main(["runs", "export", "last", str(target)]) == 1
    assert "it exists already" in capsys.readouterr().err
    with pytest.raises(UsageError, match="one of the arguments FILE --tensorboard is required"):
        _notebook("runs", "export last")


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (["rns"], 2, "jupyter ddl: unknown command 'rns'; expected cluster or runs; did you mean"),
        (["runs", "--al"], 2, "unknown command '--al'"),
        (["runs", "list", "--al"], 2, "jupyter ddl: runs list: unknown option '--al'; --help"),
        (["runs", "show", "r1-zzzzz"], 1, "no run 'r1-zzzzz'; `jupyter ddl runs` lists them"),
        (["cluster", "scale", "2"], 1, "no cluster is running; `jupyter ddl cluster start` starts"),
        (["cluster", "start", "lokal"], 2, "'lokal' is not a backend"),
        (["cluster", "start", "--gpus", "1"], 2, "'--gpus'; backend kube has it: `"),
        (["cluster", "stop", "a", "--all"], 2, "cluster stop: either a or --all, not both"),
        (["cluster", "attach", "a"], 1, "no cluster named 'a' is running; running: none"),
        (["runs", "replay", "a"], 2, "unknown command 'replay'"),
    ],
)
def test_a_terminal_refuses_in_one_line_with_a_status(
    home: Home, words: list[str], status: int, says: str, capsys: Any
) -> None:
    assert main(words) == status
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert says in said.err


def test_a_form_has_the_options_that_the_terminal_has(monkeypatch: pytest.MonkeyPatch) -> None:
    forms = {name: form_of(name) for name in BACKENDS.names()}
    flags = {name: [field.flag for field in form.fields] for name, form in forms.items()}
    assert flags["local"] == []
    assert {"--env", "--namespace", "--set-env"} <= set(flags["kube"])
    assert flags["dask"] == ["address"]
    assert not forms["dask"].has_size
    assert all(form.purpose.endswith(".") for form in forms.values())
    many = next(field for field in forms["kube"].fields if field.flag == "--set-env")
    assert (many.is_list, many.metavar) == (True, "NAME=VALUE")


def test_what_is_missing_is_explained_by_the_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "pip install 'jupyter_ddl[kubernetes]'" in form_of("kube").missing
    assert "pip install 'jupyter_ddl[gateway]'" in form_of("gateway").missing
    assert form_of("local").missing == ""


def test_words_of_a_form_are_read_as_those_of_a_line() -> None:
    words = ["--env=x/y:1", "--set-env=A=b c", "--set-env=B=--d", "--gpus=2"]
    values = own_options("kube", words)
    assert (values["image"], values["gpus"]) == ("x/y:1", 2)
    assert values["env"] == [("A", "b c"), ("B", "--d")]
    assert own_options("dask", ["tls://h:8786"]) == {"address": "tls://h:8786"}


@pytest.mark.parametrize(
    ("backend", "words"),
    [
        ("local", ["--env=x"]),
        ("kube", ["--gpus=many"]),
        ("kube", ["--help"]),
        ("dask", []),
        ("nowhere", []),
    ],
)
def test_a_form_that_is_wrong_gets_one_line(backend: str, words: list[str]) -> None:
    with pytest.raises(OptionError) as refused:
        own_options(backend, words)
    assert "\n" not in str(refused.value)
