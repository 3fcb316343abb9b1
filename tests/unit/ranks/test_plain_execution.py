"""The in-cell functions without a run, and what importing the package costs."""

from __future__ import annotations

import builtins
import pickle
import subprocess
import sys
import types
from typing import Any

import pytest

import jupyter_ddl
from jupyter_ddl.errors import SpaceError
from jupyter_ddl.ranks import incell
from jupyter_ddl.ranks.metrics import ReportError


@pytest.fixture(autouse=True)
def _first_report(monkeypatch: Any) -> None:
    monkeypatch.setattr(incell, "_plain_step", -1)


def test_report_prints_one_line(capsys: Any) -> None:
    incell.report(step=3, loss=0.12, val_acc=0.91)
    incell.report(loss=1e-9)
    assert capsys.readouterr().out == "step 3  loss=0.12  val_acc=0.91\nstep 4  loss=1e-09\n"


def test_report_refuses_what_a_run_would_refuse() -> None:
    with pytest.raises(ReportError, match=r"metric 'loss' is 'x' \(str\); expected a number"):
        incell.report(loss="x")


def test_checkpoint_only_says_so_and_resume_finds_nothing(capsys: Any, tmp_path: Any) -> None:
    incell.checkpoint(step=2, model={})
    out = "checkpoint step 2: model (not saved: the cell runs without a run)\n"
    assert capsys.readouterr().out == out
    assert incell.resume() is None


def test_one_process_is_rank_0_of_1() -> None:
    assert (incell.rank(), incell.world_size(), incell.local_rank()) == (0, 1, 0)


def test_the_questions_are_counted_with_as_their_answers(monkeypatch: Any) -> None:
    monkeypatch.setattr(incell, "_attempt", types.SimpleNamespace(rank=2, world_size=4))
    rank, world_size = incell.rank, incell.world_size
    assert (rank == 2, rank != 2, rank < 2, 2 in [rank], bool(rank)) == (True, False, False, 1, 1)
    assert (10 % world_size, rank + world_size, -rank, 2**rank, float(rank)) == (2, 6, -2, 4, 2.0)
    assert (f"{rank}/{world_size:2d}", list(range(10))[rank::world_size]) == ("2/ 4", [2, 6])
    assert pickle.loads(pickle.dumps(rank)) is rank
    assert len({rank, world_size}) == 2
    monkeypatch.setattr(incell, "_attempt", None)
    assert rank == 0
    assert not rank


def test_a_cell_finds_numbers_that_may_be_called(monkeypatch: Any) -> None:
    import torch

    monkeypatch.setattr(
        incell, "_attempt", types.SimpleNamespace(rank=2, world_size=4, local_rank=1)
    )
    names = incell.namespace_defaults()
    assert {name: names[name]() for name in ("rank", "world_size", "local_rank")} == {
        "rank": 2,
        "world_size": 4,
        "local_rank": 1,
    }
    assert torch.tensor([names["rank"]]).tolist() == [2]
    assert type(pickle.loads(pickle.dumps(names["rank"]))) is int


def test_prepare_moves_modules_and_returns_everything_else() -> None:
    import torch

    model = torch.nn.Linear(1, 1)
    loader: list[int] = []
    prepared = incell.prepare(model, loader)
    assert prepared[0] is model
    assert prepared[1] is loader
    assert next(model.parameters()).device.type == incell.device().type
    assert incell.prepare(loader) is loader


def test_log_prints_the_time_of_day(capsys: Any) -> None:
    incell.log("epoch", 3)
    out = capsys.readouterr().out
    assert out[2] == out[5] == ":"
    assert out[8:] == " epoch 3\n"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (incell.loguniform(1e-4, 1e-2), 1e-3),
        (incell.loguniform(1e-4, 1e-2, default=5e-3), 5e-3),
        (incell.uniform(0, 1), 0.5),
        (incell.uniform(0, 1, step=0.4), 0.4),
        (incell.randint(1, 10), 5),
        (incell.randint(1, 100, log=True), 10),
        (incell.randint(0, 10, step=4), 4),
        (incell.choice(64, 128), 64),
        (incell.choice([64, 128]), 64),
        (incell.choice(min, max, default=max), max),
    ],
)
def test_distributions_return_their_default(value: Any, expected: Any) -> None:
    assert value == pytest.approx(expected) if isinstance(expected, float) else value == expected


@pytest.mark.parametrize(
    ("function", "args"),
    [
        ("loguniform", (0, 1)),
        ("uniform", (2, 1)),
        ("randint", (0.5, 1)),
        ("choice", ()),
    ],
)
def test_wrong_distributions_are_refused_without_a_run_too(
    function: str, args: tuple[Any, ...]
) -> None:
    with pytest.raises(SpaceError):
        getattr(incell, function)(*args)


def test_every_public_name_can_be_fetched() -> None:
    for name in jupyter_ddl.__all__:
        assert getattr(jupyter_ddl, name) is not None
    assert set(jupyter_ddl.__all__) <= set(dir(jupyter_ddl))
    with pytest.raises(AttributeError, match="no attribute 'reprot'"):
        jupyter_ddl.reprot  # noqa: B018


def test_importing_the_package_loads_nothing_else() -> None:
    code = (
        "import sys; before = set(sys.modules); import jupyter_ddl; "
        "print(sorted(set(sys.modules) - before))"
    )
    command = [sys.executable, "-c", code]
    out = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    assert out.strip() == "['__future__', 'jupyter_ddl']"


def test_builtins_that_need_somebody_at_the_screen(monkeypatch: Any) -> None:
    for name in ("input", "exit", "quit"):
        monkeypatch.setattr(builtins, name, None, raising=False)
    incell.replace_builtins()
    with pytest.raises(EOFError, match=r"^input\('age: '\) has nobody to ask on a rank; ask in an"):
        input("age: ")
    for leave, code in ((exit, 2), (quit, None)):
        with pytest.raises(SystemExit) as ended:
            leave(code)
        assert ended.value.code == code
    assert not sys.stdin.closed
