"""Code that arrives in another process keeps its file's name."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jupyter_ddl.cell.capture import capture
from jupyter_ddl.ranks.values import save_values

_SOURCE = """
def outer():
    def inner():
        return 1
    return inner
"""


def made() -> Callable[[], Any]:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(_SOURCE, "/data/tools.py", "exec"), namespace)
    found: Callable[[], Any] = namespace["outer"]
    return found


def assert_keeps_its_file(function: Any) -> None:
    for each in (function, function()):
        assert each.__code__.co_filename == "/data/tools.py"
    assert function()() == 1


def test_a_captured_function_keeps_its_file_and_so_do_those_inside_it() -> None:
    assert_keeps_its_file(pickle.loads(capture({"outer": made()}, {}).payload))


def test_a_function_that_is_brought_back_keeps_its_file(tmp_path: Path) -> None:
    save_values({"outer": made()}, tmp_path / "values")
    assert_keeps_its_file(pickle.loads((tmp_path / "values").read_bytes())["outer"])
