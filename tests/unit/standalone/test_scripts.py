"""A run as a program: executed without jupyter_ddl, it does what the run has done."""

from __future__ import annotations

import argparse
import ast
import random
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from jupyter_ddl.errors import CaptureError, OptionError
from jupyter_ddl.protocol.assignment import derive_seed
from jupyter_ddl.protocol.space import Choice
from jupyter_ddl.ranks.loader import order
from jupyter_ddl.standalone import pieces
from jupyter_ddl.standalone.export import export_program
from jupyter_ddl.standalone.options import options_of
from tests.leaks import Home
from tests.unit.standalone.recorded_cells import executed, notebook_of, record, reports

SEARCH = "search --metric acc --seed 3 --trials 4"
NOTEBOOK = (
    "import functools\nimport numpy as np\nfrom time import time\nfrom collections import Counter",
    "X = np.arange(12.0).reshape(3, 4)\nclasses = ('a', 'b')\nnames = {'k': [1, 2.5, None]}\n",
    "class Base:\n    def total(self):\n        return X.sum()\n\n"
    "class Net(Base):\n    def value(self, x: Counter):\n        return self.total() + big(x)\n\n"
    "@functools.cache\ndef big(x):\n    return x * 3 + len(names)",
)
CELL = """from jupyter_ddl import report as tell, loguniform, choice, uniform, randint
import jupyter_ddl as ddl

lr = loguniform(1e-4, 1e-1)  # a step
wave = choice(np.sin, np.cos)
model = choice("svm", "knn")
if model == "svm":
    C = uniform(0, 1)
else:
    C = randint(3, 9)
text = '''
  kept
'''
rank = ddl.rank()
net = Net()
for step in range(3):
    noise = np.random.rand()
    tell(step=step, acc=net.value(lr) + wave(C) + step + noise + len(text))
ddl.log(f"model {model} of {len(classes)} on {rank}", time() > 0)
"""
PARAMS = {"lr": 0.01, "wave": "cos", "model": "knn", "C[knn]": 7}


def test_a_program_of_a_search_does_what_its_best_trial_has_done(
    home: Home, tmp_path: Path
) -> None:
    run = record(SEARCH, CELL, notebook_of(*NOTEBOOK), PARAMS, name="small")
    path = tmp_path / "train.py"
    answer = export_program(run.run_id, path, "script")
    assert answer.startswith(f"Run {run.run_id} is in {path}, with train_data beside it (")
    assert "torch" not in path.read_text().split("# -- from the notebook")[0].split("def ")[0]
    printed = executed(path)
    np.random.seed(derive_seed(run.seed, 0))
    wanted = [66 + 0.03 + 1 + np.cos(7) + step + np.random.rand() + 8 for step in range(3)]
    assert [each["acc"] for each in reports(tmp_path)] == pytest.approx(wanted, rel=1e-12)
    assert f"step=2 acc={wanted[2]:.6g}" in printed
    assert "model knn of 2 on 0 True" in printed
    # Another point of the space, in another folder; its seed is the same.
    given = ("--model", "svm", "--C-svm", "0.5", "--wave", "sin", "--output-dir", "other")
    executed(path, *given)
    changed = [value - np.cos(7) + np.sin(0.5) for value in wanted]
    assert [each["acc"] for each in reports(tmp_path / "other")] == pytest.approx(changed)


TRAINING = """import torch
from jupyter_ddl import loguniform, prepare, report, resume, checkpoint, rank, world_size

lr = loguniform(1e-3, 1e-1, default=0.05)
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=lr)
loader = torch.utils.data.DataLoader(data, batch_size=4, shuffle=True)
model, loader = prepare(model, loader)
state = resume()
first = 0
if state:
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    first = state["step"] + 1
for epoch in range(first, epochs):
    for x in loader:
        optimizer.zero_grad()
        loss = (model(x[:, :2]) - x[:, 2:]).square().mean()
        loss.backward()
        optimizer.step()
    report(step=epoch, loss=loss, seen=world_size() + rank(), reduce="sum")
    checkpoint(model=model, optimizer=optimizer)
"""


def test_a_training_under_torchrun_computes_what_the_run_computes(
    home: Home, tmp_path: Path
) -> None:
    data = torch.from_numpy(np.random.default_rng(0).normal(size=(22, 3)).astype("float32"))
    run = record("ddp -n 2 --seed 5", TRAINING, notebook_of("epochs = 4", data=data))
    path = tmp_path / "train.py"
    export_program(run.run_id, path, "script")
    assert f"torchrun --nproc-per-node 2 {path.name}" in path.read_text()
    executed(path, ranks=2)
    told = reports(tmp_path)
    assert [each["step"] for each in told] == [0, 1, 2, 3]
    assert {each["seen"] for each in told} == {5.0}
    assert told[-1]["loss"] == pytest.approx(_loss_of_ranks(data, derive_seed(run.seed, 0)), 1e-4)
    saved = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    assert saved["state"].keys() == {"model", "optimizer", "step"}
    assert saved["state"]["model"].keys() == {"weight", "bias"}, "as one process would save it"
    assert saved["epochs"] == [4]


def test_a_program_goes_on_from_its_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "_OUTPUT", tmp_path)
    whole = _pieces_trained(0, 4)
    assert pieces.resume() is not None
    for each in tmp_path.iterdir():
        each.unlink()
    _pieces_trained(0, 2)
    told = reports(tmp_path)
    state = pieces.resume()
    assert state is not None
    assert state["step"] == 1
    assert _pieces_trained(2, 4, state) == whole
    assert reports(tmp_path)[:2] == told, "reports go on behind those that are there"


def _pieces_trained(first: int, last: int, state: Any = None) -> list[list[int]]:
    """The order of samples in each epoch of a training by the pieces, in a fresh process."""
    pieces._loaders.clear()
    pieces._seed_all(7)
    if state is None:
        pieces._at.update(step=-1, mode="w")
        pieces._epochs.clear()
    model = torch.nn.Linear(1, 1)
    loader = torch.utils.data.DataLoader(torch.arange(9.0)[:, None], batch_size=2, shuffle=True)
    model, loader = pieces.prepare(model, loader)
    if state is not None:
        model.load_state_dict(state["model"])
        _seen[2:] = []
    else:
        _seen.clear()
    for epoch in range(first, last):
        _seen.append([int(x) for batch in loader for x in batch])
        pieces.report(step=epoch, n=len(_seen))
        pieces.checkpoint(model=model, best=[0.5, {"k": None}])
    return [*_seen]


_seen: list[list[int]] = []


def test_a_checkpoint_of_what_could_not_be_read_again_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "_OUTPUT", tmp_path)
    with pytest.raises(TypeError, match=r"checkpoint\(net\['a'\]=…\) is a ndarray; expected"):
        pieces.checkpoint(net={"a": np.zeros(2)})
    assert [*tmp_path.iterdir()] == []


def _loss_of_ranks(data: Any, seed: int) -> float:
    """The training's last loss, of both ranks in one process."""
    random.seed(seed)
    torch.manual_seed(seed)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    total = 0.0
    for epoch in range(4):
        indices = order(22, seed, epoch, shuffle=True)
        for start in range(0, 11, 4):
            optimizer.zero_grad()
            total = 0.0
            for rank in range(2):
                x = data[indices[rank::2][start : start + 4]]
                loss = (model(x[:, :2]) - x[:, 2:]).square().mean()
                (loss / 2).backward()
                total += float(loss.detach())
            optimizer.step()
    return total


def test_a_program_of_a_map_has_every_element(home: Home, tmp_path: Path) -> None:
    # Python ends no line at a form feed or at U+2028.
    twice = "text = 'a\x0cb\u2028c'\ndef twice(x):\n    return 2 * x"
    namespace = notebook_of(f"pairs = [(1, 'a'), (2, 'b')]\n{twice}")
    cell = 'x = """\x0c\u2028"""\ntext = """\nlong"""\nn = twice(number)\n{letter: n + len(text)}'
    run = record("map --over number, letter in pairs", cell, namespace)
    path = tmp_path / "each.py"
    export_program(run.run_id, path, "script")
    executed(path)
    wanted = [{"item": 0, "value": {"a": 7}}, {"item": 1, "value": {"b": 9}}]
    assert reports(tmp_path, "results.jsonl") == wanted
    executed(path, "--item", "1", "--output-dir", "one")
    assert reports(tmp_path / "one", "results.jsonl") == wanted[1:]


def test_a_mapped_expression_needs_no_name(home: Home, tmp_path: Path) -> None:
    run = record("map --over range(2,4)", "item ** 2")
    export_program(run.run_id, tmp_path / "each.py", "script")
    executed(tmp_path / "each.py")
    assert [each["value"] for each in reports(tmp_path, "results.jsonl")] == [4, 9]


def test_a_value_in_parentheses_is_kept_as_well(home: Home, tmp_path: Path) -> None:
    run = record("map --over range(2)", "(\n    item\n    + 1\n)  # plus one")
    export_program(run.run_id, tmp_path / "each.py", "script")
    executed(tmp_path / "each.py")
    assert [each["value"] for each in reports(tmp_path, "results.jsonl")] == [1, 2]


def test_no_name_ends_the_docstring_of_a_program(home: Home, tmp_path: Path) -> None:
    name = 'a """ \\ \\N{no}\nprint(1) \0é "'
    run = record("map --over range(2)", "item", name=name)
    path = tmp_path / 'each"""\\.py'
    export_program(run.run_id, path, "script")
    told = ast.get_docstring(ast.parse(path.read_text()))
    assert told is not None
    assert told.splitlines()[0] == (
        f'What run {run.run_id} a """ \\ \\N{{no}} print(1)  é " has computed, as a program of its '
        f"own."
    )
    assert f"    python {path.name}" in told.splitlines()


def test_a_value_that_is_no_choice_is_told_by_the_program(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (option,) = options_of({"n": Choice((3, None, "a b"))}, {"n": None}, ()).values()
    parser = argparse.ArgumentParser()
    eval(f"parser.add_argument({option.declaration})", {"parser": parser})
    assert parser.parse_args([]).n is None
    found = [parser.parse_args(["--n", text]).n for text in ("3", "None", "a b")]
    assert found == [3, None, "a b"]
    with pytest.raises(SystemExit):
        parser.parse_args(["--n", "4"])
    assert "argument --n: invalid choice: '4'" in capsys.readouterr().err


def test_values_of_a_dict_of_space_and_own_modules_travel(home: Home, tmp_path: Path) -> None:
    folder = tmp_path / "notebook"
    folder.mkdir()
    (folder / "own_steps.py").write_text("def third(x):\n    return x / 3\n")
    namespace = notebook_of(
        "from jupyter_ddl import dist\nimport math\n"
        "def plus(x):\n    return x + 1\n"
        "space = {'f': [plus, math.sqrt], 'lr': dist.uniform(0, 1), 'n': [3, None]}"
    )
    cell = "import own_steps\nacc = own_steps.third(f(lr)) + (n or 0)"
    line = "search --metric acc --space space"
    params = {"f": "plus", "lr": 0.5, "n": None}
    run = record(line, cell, namespace, params, folder)
    path = tmp_path / "run.py"
    export_program(run.run_id, path, "script")
    executed(path)
    assert reports(tmp_path) == [{"step": 0, "acc": 0.5}]
    executed(path, "--f", "sqrt", "--n", "3")
    assert reports(tmp_path)[0]["acc"] == pytest.approx(0.5**0.5 / 3 + 3)


_MISSING = "def plain(x, limit=BOUND):\n    return x"
_REFUSED: dict[str, tuple[str, str, tuple[str, ...], str]] = {
    "an object": (
        "search --metric acc", "x = uniform(0, 1)\nacc = x + len(net.weight)",
        ("import torch\nnet = torch.nn.Linear(2, 1)",),
        r"no plain file holds net \(torch.nn.modules.linear.Linear\), and nothing is pickled; make "
        r"it inside the cell",
    ),
    "a name of a definition": (
        "search --metric acc", "x = uniform(0, 1)\nacc = plain(x)", ("BOUND = 3", _MISSING),
        "the record does not have BOUND, which plain needs; bind it in the same cell",
    ),
    "a strategy": (
        "ddp -n 2 --strategy fsdp", "import torch", (), "not fsdp; run it with that",
    ),
    "a mesh": (
        "ddp -n 2", "import torch\nstep = prepare_step(1, 2, 3)", (),
        "it uses prepare_step of jupyter_ddl; expected no more than checkpoint, device,",
    ),
    "another package of ours": (
        "ddp -n 2", "import torch\nimport jupyter_ddl.horovod as hvd", (),
        "it uses jupyter_ddl.horovod of jupyter_ddl",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", _REFUSED)
def test_what_no_program_can_have_is_refused_in_one_line(
    case: str, home: Home, tmp_path: Path
) -> None:
    line, cell, cells, expected = _REFUSED[case]
    run = record(line, cell, notebook_of(*cells), {"x": 0.5})
    with pytest.raises((CaptureError, OptionError), match=expected) as refusal:
        export_program(run.run_id, tmp_path / "train.py", "script")
    assert "\n" not in refusal.value.message
    assert [*tmp_path.iterdir()] == [], "and nothing is left"


def test_a_search_without_a_complete_trial_has_no_program(home: Home, tmp_path: Path) -> None:
    run = record(SEARCH, "x = uniform(0, 1)\nacc = x")
    with pytest.raises(OptionError, match="it has no complete trial"):
        export_program(run.run_id, tmp_path / "train.py", "script")


def test_a_file_that_is_there_is_replaced_only_if_asked_for(home: Home, tmp_path: Path) -> None:
    run = record(SEARCH, "x = uniform(0, 1)\nacc = x", None, {"x": 0.5})
    path = tmp_path / "train.py"
    path.write_text("mine")
    with pytest.raises(OptionError, match="exists already; give another name, or --overwrite"):
        export_program(run.run_id, path, "script")
    export_program(run.run_id, path, "script", overwrite=True)
    assert "dest='x', type=float, default=0.5" in path.read_text()
    for name, expected in {
        "train.txt": "ends in '.txt'; expected .py",
        "no/a.py": "no folder",
    }.items():
        with pytest.raises(OptionError, match=expected):
            export_program(run.run_id, tmp_path / name, "script")


def test_a_folder_that_no_program_has_written_is_never_deleted(home: Home, tmp_path: Path) -> None:
    run = record("map --over n in pairs", "n + X.sum()", notebook_of(pairs=[1], X=np.arange(3.0)))
    path, data = tmp_path / "train.py", tmp_path / "train_data"
    data.mkdir()
    (data / "images").write_text("mine")
    for text in ("", "import pathlib"):
        with pytest.raises(OptionError, match=r"no program in train\.py has written it; give"):
            export_program(run.run_id, path, "script", overwrite=True)
        assert (data / "images").read_text() == "mine"
        path.write_text(text)
    (data / "images").unlink()
    data.rmdir()
    export_program(run.run_id, path, "script", overwrite=True)
    (data / "older").write_text("of the program before")
    export_program(run.run_id, path, "script", overwrite=True)
    assert [each.name for each in data.iterdir()] == ["X.npy"]


def test_an_export_that_is_killed_or_has_no_place_is_one_line(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = record("map --over range(2)", "item")
    path = tmp_path / "each.py"

    def killed(*_: Any, **__: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess([], -9, "", "Killed\n")

    monkeypatch.setattr(subprocess, "run", killed)
    with pytest.raises(CaptureError) as refusal:
        export_program(run.run_id, path, "script")
    assert refusal.value.message.endswith("its cell failed: it ended with status -9: Killed")

    def denied(**_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(tempfile, "TemporaryDirectory", denied)
    with pytest.raises(OptionError, match="place that you can"):
        export_program(run.run_id, path, "script")
