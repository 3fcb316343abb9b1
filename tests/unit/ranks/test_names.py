"""What a cell finds: captures, parameters, shipped modules, and the functions of the API."""

from __future__ import annotations

import io
import sys
import types
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest

from jupyter_ddl.protocol.program import MAIN_GLOBALS, Labels
from tests.unit.ranks.conftest import pickled, placeholder


def test_a_declared_parameter_gets_the_trials_value(host: Any) -> None:
    source = "\nlr = loguniform(1e-4, 1e-1)\nv = lr\n"
    rank = host.load(source, program={"placeholders": (placeholder(source, "lr"),)}, metric="v")
    assert rank.run(0, params={"lr": 0.5}).value == 0.5
    assert rank.run(1, params={"lr": 0.25}).value == 0.25


def test_annotated_parameters_get_the_trials_value_too(host: Any) -> None:
    source = (
        "from typing import Annotated\n"
        "lr: Annotated[float, loguniform(1e-4, 1e-1)] = 1e-2\n"
        "n: Annotated[int, randint(1, 9)]\n"
        "v = lr + n\n"
    )
    placeholders = (placeholder(source, "lr"), placeholder(source, "n"))
    rank = host.load(source, program={"placeholders": placeholders}, metric="v")
    assert rank.run(params={"lr": 0.5, "n": 2}).value == 2.5


def test_a_label_picks_the_object_at_its_position(host: Any) -> None:
    source = "f = choice(min, max, default=max)\nv = f(1, 2)\n"
    placeholders = (placeholder(source, "f", by_index=True, labels=("min", "max")),)
    rank = host.load(source, program={"placeholders": placeholders}, metric="v")
    assert [rank.run(i, params={"f": each}).value for i, each in enumerate(("max", "min"))] == [
        2,
        1,
    ]


@pytest.mark.parametrize("call", ["choice([(1, 2), (3,)])", "choice(*[(1, 2), (3,)])"])
def test_a_label_picks_from_a_list_of_choices_too(host: Any, call: str) -> None:
    source = f"sizes = {call}\nv = len(sizes)\n"
    placeholders = (placeholder(source, "sizes", by_index=True, labels=("(1, 2)", "(3,)")),)
    rank = host.load(source, program={"placeholders": placeholders}, metric="v")
    assert rank.run(params={"sizes": "(3,)"}).value == 1


def test_a_label_in_an_annotation_picks_its_object(host: Any) -> None:
    source = "import typing\nf: typing.Annotated[object, choice(min, max)] = min\nv = f(1, 2)\n"
    placeholders = (placeholder(source, "f", by_index=True, labels=("min", "max")),)
    rank = host.load(source, program={"placeholders": placeholders}, metric="v")
    assert rank.run(params={"f": "max"}).value == 2


def test_choices_that_differ_from_the_notebooks_are_refused(host: Any) -> None:
    source = "f = choice(min)\nv = 1\n"
    placeholders = (placeholder(source, "f", by_index=True, labels=("min", "max")),)
    failure = (
        host.load(source, program={"placeholders": placeholders}, metric="v")
        .run(params={"f": "max"})
        .failure
    )
    assert "one of 2 choices in the notebook, but here choice() has 1" in failure.message
    assert failure.line == 1


def test_a_parameter_without_a_hole_becomes_a_name(host: Any) -> None:
    rank = host.load("v = lr\n", metric="v", captures={"lr": 9.0})
    assert rank.run(params={"lr": 0.5}).value == 0.5


@pytest.mark.parametrize("source", ["v = f(1, 2)\n", "f = None\nv = f(1, 2)\n"])
def test_a_label_of_the_space_dict_picks_the_lists_element(host: Any, source: str) -> None:
    labels = {"f": Labels(("f",), ("min", "max"))}
    program: dict[str, Any] = {"space_name": "space", "space_labels": labels}
    if source.startswith("f ="):
        program["placeholders"] = (placeholder(source, "f"),)
    rank = host.load(source, program=program, captures={"space": {"f": [min, max]}}, metric="v")
    assert rank.run(params={"f": "max"}).value == 2


def test_a_missing_parameter_is_named(host: Any) -> None:
    source = "lr = uniform(0, 1)\n"
    rank = host.load(source, program={"placeholders": (placeholder(source, "lr"),)}, metric="lr")
    failure = rank.run(params={"depth": 3}).failure
    assert "this trial has no value for 'lr'; its parameters are depth" in failure.message


def test_a_hole_that_is_nowhere_fails_every_trial(host: Any) -> None:
    source = "x = 1\nlr = uniform(0, 1)\n"
    wrong = placeholder(source, "lr")
    rank = host.load("lr = 1\n", program={"placeholders": (wrong,)}, metric="lr")
    assert "line 2, column 0" in rank.run(params={"lr": 1}).failure.message


def test_a_trial_that_writes_into_a_captured_array_leaks_nothing(host: Any) -> None:
    captures = {"data": np.ones(10_000), "same": None}
    captures["same"] = captures["data"]
    source = "assert same is data\nbefore = data.sum()\ndata[:] = 0\nv = before\n"
    rank = host.load(source, captures=captures, metric="v")
    assert [rank.run(trial).value for trial in range(3)] == [10_000.0] * 3


def test_captured_arrays_lie_in_the_shared_file_and_not_in_memory(host: Any) -> None:
    rank = host.load(
        "import pathlib\n"
        "maps = pathlib.Path('/proc/self/smaps').read_text()\n"
        "mine = [each for each in maps.split('VmFlags') if digest in each]\n"
        "total = data.sum()\n"
        "v = sum(int(line.split()[1]) for each in mine for line in each.splitlines()"
        " if line.startswith('Private_Dirty'))\n"
        "report(mapped=len(mine), dirty_kb=v)\n",
        captures={"data": np.arange(200_000.0), "digest": ""},
        metric="mapped",
    )
    digest = pickled({"data": np.arange(200_000.0)})[1]
    name = host.put(digest[0])
    rank = host.load(
        rank.program._program.source,
        captures={"data": np.arange(200_000.0), "digest": name},
        metric="mapped",
    )
    assert rank.run().value == 1
    assert rank.events[0].metrics["dirty_kb"] == 0


def test_a_captured_list_is_fresh_in_every_trial(host: Any) -> None:
    rank = host.load("seen.append(1)\nv = len(seen)\n", captures={"seen": []}, metric="v")
    assert [rank.run(trial).value for trial in range(3)] == [1, 1, 1]


def test_captures_override_our_names_and_the_cell_overrides_both(host: Any) -> None:
    captures = {"log": 3, "rank": 4}
    rank = host.load("rank = 5\nv = log * 10 + rank\n", captures=captures, metric="v")
    assert rank.run().value == 35


def _notebook_function(source: str, name: str) -> Any:
    namespace: dict[str, Any] = {"__name__": "__main__", "lr": "the notebook's"}
    exec(source, namespace)
    return namespace[name]


def test_a_notebook_function_sees_the_trials_names(host: Any) -> None:
    function = _notebook_function("def step():\n    return lr * 2\n", "step")
    stream = io.BytesIO()

    class Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]
        mark = {"__name__": "__main__"}

        def persistent_id(self, obj: Any) -> Any:
            return MAIN_GLOBALS if obj is self.mark else None

    pickler = Pickler(stream, protocol=5)
    pickler.globals_ref[id(function.__globals__)] = pickler.mark
    pickler.dump(function)
    source = "lr = uniform(0, 1)\nv = step()\n"
    rank = host.load(
        source,
        captures={"step": function},
        stream=(stream.getvalue(), []),
        program={"placeholders": (placeholder(source, "lr"),)},
        metric="v",
    )
    assert rank.run(0, params={"lr": 0.5}).value == 1.0
    assert rank.run(1, params={"lr": 0.25}).value == 0.5


def test_an_unknown_persistent_id_is_refused(host: Any) -> None:
    class Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]
        def persistent_id(self, obj: Any) -> Any:
            return "elsewhere" if obj == "x" else None

    stream = io.BytesIO()
    Pickler(stream).dump("x")
    rank = host.load("pass\n", captures={"x": "x"}, stream=(stream.getvalue(), []))
    assert "refer to 'elsewhere'" in rank.run().failure.message


def test_a_lost_buffer_evicts_the_attempt_instead_of_charging_it(host: Any) -> None:
    rank = host.load("v = 1\n", captures={"data": np.ones(10_000)}, metric="v")
    for path in host.blobs.iterdir():
        path.unlink()
    finished = rank.run()
    assert finished.outcome == "evicted"
    assert "is no longer on host" in finished.failure.message


def test_classes_of_the_cell_pickle_by_plain_pickle(host: Any) -> None:
    source = (
        "import pickle\n"
        "class Point:\n"
        "    def __init__(self, x): self.x = x\n"
        "v = pickle.loads(pickle.dumps(Point(3))).x\n"
    )
    main = sys.modules["__main__"]
    assert host.load(source, metric="v").run().value == 3
    assert sys.modules["__main__"] is main


@pytest.mark.forks
def test_forked_loader_workers_find_a_dataset_class_of_the_cell(host: Any) -> None:
    source = (
        "import torch\n"
        "class Numbers(torch.utils.data.Dataset):\n"
        "    def __len__(self): return 4\n"
        "    def __getitem__(self, i): return torch.tensor(float(i))\n"
        "loader = torch.utils.data.DataLoader(Numbers(), num_workers=1, "
        "multiprocessing_context='fork')\n"
        "v = sum(loader)\n"
    )
    assert host.load(source, metric="v").run().value == 6


def test_shipped_modules_import_and_show_their_lines(host: Any) -> None:
    modules = {
        "shipped_pkg/__init__.py": "from .inner import half\n",
        "shipped_pkg/inner.py": "def half(x):\n    return 2 / x\n",
        "shipped_single.py": "TWO = 2\n",
    }
    source = (
        "import inspect, shipped_pkg, shipped_single\n"
        "assert 'return 2 / x' in inspect.getsource(shipped_pkg.half)\n"
        "report(v=shipped_pkg.half(shipped_single.TWO))\n"
        "shipped_pkg.half(0)\n"
    )
    finished = host.load(source, modules=modules, metric="v").run()
    assert finished.failure.type_name == "ZeroDivisionError"
    assert finished.failure.line == 4
    assert "inner.py" in finished.failure.traceback
    assert "return 2 / x" in finished.failure.traceback


def test_two_ranks_may_install_the_same_modules(host: Any) -> None:
    modules = {"shipped_twice.py": "X = 7\n"}
    first = host.load("import shipped_twice\nv = shipped_twice.X\n", modules=modules, metric="v")
    second = host.load("import shipped_twice\nv = shipped_twice.X\n", modules=modules, metric="v")
    assert (first.run().value, second.run().value) == (7, 7)
    (directory,) = (host.run_dir / "modules").iterdir()
    assert [path.name for path in directory.iterdir() if path.suffix == ".py"] == [
        "shipped_twice.py"
    ]


@pytest.mark.parametrize("path", ["../evil.py", "/etc/evil.py"])
def test_a_module_outside_the_folder_is_refused(host: Any, path: str) -> None:
    failure = host.load("pass\n", modules={path: ""}).run().failure
    assert "is not below the notebook's folder" in failure.message


def test_a_missing_package_fails_with_its_name_and_this_host(host: Any) -> None:
    rank = host.load("import no_such_pkg\n", program={"imports": ("no_such_pkg",)})
    failure = rank.run().failure
    assert failure.kind == "import"
    assert failure.message.startswith("importing 'no_such_pkg' failed: No module named")
    assert f"on host {__import__('socket').gethostname()}" in failure.message
    assert rank.program.failure == failure


def test_a_package_that_may_be_missing_is_the_cells_own_matter(host: Any) -> None:
    source = "try:\n    import no_such_pkg\nexcept ImportError:\n    v = 1\n"
    rank = host.load(source, program={"imports": ("no_such_pkg",)}, metric="v")
    assert rank.run().value == 1


def test_an_import_that_fails_late_is_an_import_failure_with_its_line(host: Any) -> None:
    failure = host.load("x = 1\nimport no_such_pkg.sub\n").run().failure
    assert (failure.kind, failure.line) == ("import", 2)
    assert "importlib" not in failure.traceback


def test_the_mapped_element_is_bound(host: Any) -> None:
    rank = host.load(
        "item * 10\n",
        captures={"items": [1, 2, 3]},
        program={"ends_in_expression": True},
        over="items",
        element="item",
    )
    values = [rank.run(i, item=i) for i in range(3)]
    assert [each.inline_value for each in values] == [10, 20, 30]
    assert all(each.has_inline_value and each.values_file is None for each in values)
    assert [each.value for each in values] == [None] * 3


def test_the_api_names_are_there(host: Any) -> None:
    source = (
        "assert jupyter_ddl.report is report\n"
        "import jupyter_ddl as ddl\n"
        "assert ddl.choice is choice\n"
        "assert (rank(), world_size(), local_rank(), resume()) == (0, 1, 0, None)\n"
        "display('shown')\n"
        "assert get_ipython() is None\n"
        "v = uniform(0, 1, default=0.75)\n"
    )
    finished = host.load(source, metric="v").run()
    assert finished.failure is None
    assert finished.value == 0.75


def test_a_cell_may_begin_with_a_future_import_and_end_in_an_expression(host: Any) -> None:
    source = (
        "from __future__ import annotations\ndef f(x: NoSuchName): pass\nf.__annotations__['x']\n"
    )
    rank = host.load(
        source, program={"ends_in_expression": True}, over="one", captures={"one": [1]}
    )
    assert rank.run(item=0).inline_value == "NoSuchName"


def test_a_cell_may_await_at_its_top_level(host: Any) -> None:
    source = (
        "import asyncio\nawait asyncio.sleep(0)\nasync def three():\n    return 3\nawait three()\n"
    )
    rank = host.load(
        source, program={"ends_in_expression": True}, over="one", captures={"one": [1]}
    )
    assert rank.run(item=0).inline_value == 3


def test_the_source_is_found_by_inspect(host: Any) -> None:
    source = "import inspect\ndef f():\n    return 1\nv = int('return 1' in inspect.getsource(f))\n"
    assert host.load(source, metric="v").run().value == 1


def test_a_program_that_is_not_there_says_so(host: Any) -> None:
    from jupyter_ddl.errors import LaunchError
    from jupyter_ddl.protocol.assignment import Assignment
    from jupyter_ddl.ranks.program import load_program

    missing = Assignment("r", "a", "0" * 64, (), str(host.run_dir), (str(host.blobs),), "t")
    with pytest.raises(LaunchError, match=r"blob 0+ is in none of"):
        load_program(missing)
    assert Path(host.run_dir).is_dir()
    assert isinstance(sys.modules["__main__"], types.ModuleType)
