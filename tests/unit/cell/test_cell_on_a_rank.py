"""Compiled cells, executed as a rank executes them: both sides agree on the program."""

import gc
import sys

import msgspec
import numpy as np
import pytest

from jupyter_ddl.protocol.assignment import Assignment, TrialAssignment
from jupyter_ddl.protocol.events import AttemptFinished, Reported
from jupyter_ddl.ranks.program import load_program
from jupyter_ddl.ranks.stopping import StopFlag
from jupyter_ddl.store.blobs import put_blob
from tests.unit.cell.cell_makers import compiled, notebook


@pytest.fixture
def run(tmp_path):
    """Run one trial of a compiled cell; returns how it ended and what it reported."""
    path, modules = sys.path.copy(), set(sys.modules)
    blobs, run_dir = tmp_path / "blobs", tmp_path / "run"
    blobs.mkdir()
    run_dir.mkdir()

    def run_trial(found, item=None, **params):
        for digest, data in found.blobs:
            assert put_blob(data, [blobs]) == digest
        verb = found.spec.verb
        assignment = Assignment(
            "run-1",
            "a-1",
            put_blob(msgspec.msgpack.encode(found.spec.program), [blobs]),
            (),
            str(run_dir),
            (str(blobs),),
            "topic",
            metric=verb.study.metric if verb.study else None,
            over=verb.items.over if verb.items else None,
            element=verb.items.element if verb.items else None,
        )
        events = []
        ended = load_program(assignment).run_trial(
            TrialAssignment(0, 1, params, 5, item), assignment, events.append, StopFlag()
        )
        assert isinstance(ended, AttemptFinished)
        assert ended.failure is None, ended.failure
        return ended, [event.metrics for event in events if isinstance(event, Reported)]

    yield run_trial
    gc.unfreeze()
    for name in set(sys.modules) - modules:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
    sys.path[:] = path


def relu(x):
    return max(x, 0.0)


NOTEBOOK = """
from jupyter_ddl import choice, loguniform, report
lr = 100.0
def step(x):
    return x * lr
"""


def test_declared_annotated_space_and_grid_parameters_reach_the_cell(run):
    cell = (
        "from typing import Annotated\n"
        "lr = loguniform(1e-3, 1e-1)\n"
        "m: Annotated[float, uniform(0, 1)] = 0.5\n"
        "act = choice(relu, abs)\n"
        "wd = 0.5\n"
        "report(acc=act(step(X.sum())) + m, wd=wd, depth=depth, norm=norm(-4.0))\n"
    )
    namespace = notebook(
        NOTEBOOK, X=-np.ones((200, 100)), relu=relu, space={"norm": [relu, abs], "depth": [1, 2]}
    )
    found = compiled("search --metric acc --space space --grid wd=0.1,0.2", cell, namespace)
    _, reported = run(found, lr=0.01, m=0.25, act="abs", wd=0.2, depth=2, norm="abs")
    assert reported == [{"acc": 200.25, "wd": 0.2, "depth": 2.0, "norm": 4.0}]


def test_rank_is_a_number_in_the_cell_and_in_functions_of_both(run):
    cell = "def inner(): return rank == 0\nreport(a=1 + inner(), b=item + outer(), c=rank)"
    code = "from jupyter_ddl import rank\ndef outer(): return rank == 0"
    found = compiled("map --over items", cell, notebook(code, items=[5]))
    assert run(found, 0)[1] == [{"a": 2.0, "b": 6.0, "c": 0.0}]


@pytest.mark.parametrize("call", ["choice(relu, abs)", "choice([relu, abs])", "choice(*both)"])
def test_objects_are_picked_by_label(call, run):
    namespace = notebook(relu=relu, both=[relu, abs])
    found = compiled("search", f"act = {call}\nreport(acc=act(-2.0))", namespace)
    assert run(found, act="relu")[1] == [{"acc": 0.0}]
    assert run(found, act="abs")[1] == [{"acc": 2.0}]


def test_a_module_beside_the_notebook_and_an_assigned_metric_work(run, tmp_path):
    folder = tmp_path / "notebook"
    folder.mkdir()
    (folder / "helper_beside.py").write_text("def double(x):\n    return 2 * x\n")
    cell = "import helper_beside\nx = uniform(0, 1)\nacc = helper_beside.double(x)\n"
    found = compiled("search --metric acc", cell, notebook(), folder)
    assert run(found, x=0.25)[0].value == 0.5


def test_a_map_sees_one_element(run):
    namespace = notebook("def inverse(x):\n    return 1 / x", items=(1, 2, 4))
    found = compiled("map --over x in items", "report(step=0, y=inverse(x))", namespace)
    assert run(found, item=2)[1] == [{"y": 0.25}]
    found = compiled("map --over x in range(1, 9, 3)", "report(step=0, y=inverse(x))", namespace)
    assert run(found, item=1)[1] == [{"y": 0.25}]


def test_a_map_sees_the_parts_of_an_element(run):
    found = compiled("map --over n, k in zip(a, range(5))", "report(n=n, k=k)", notebook(a=[7, 8]))
    assert run(found, 1)[1] == [{"n": 8.0, "k": 1.0}]
