"""A package that is broken in the kernel: a half of it is there, or a module of nothing."""

from __future__ import annotations

import sys
import types

import pytest

from jupyter_ddl.cell.settings import read_settings
from jupyter_ddl.settings import LIBRARIES
from tests.unit.cell.cell_makers import compiled, notebook

_LINE = "search --metric acc --trials 3"
_CELL = "lr = loguniform(1e-4, 1e-1)\nacc = lr * len(words) * scale()\n"


def _notebook() -> dict[str, object]:
    namespace = notebook("def scale():\n    return 2\n")
    namespace["words"] = ["a", "b"] * 1000
    return namespace


@pytest.mark.parametrize("package", ["torch", "pandas", "sklearn", "matplotlib", "numpy"])
def test_a_cell_that_does_not_need_it_is_as_it_was(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = compiled(_LINE, _CELL, _notebook()).spec.program
    # As an import leaves it that was interrupted, or a stub of somebody's own.
    monkeypatch.setitem(sys.modules, package, types.ModuleType(package))
    found = compiled(_LINE, _CELL, _notebook()).spec.program
    assert [each.name for each in found.captures] == [each.name for each in before.captures]


def test_its_settings_are_named_in_a_line_and_the_others_travel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for package in ("torch", "pandas", "sklearn", "matplotlib"):
        monkeypatch.setitem(sys.modules, package, types.ModuleType(package))
    sys_limit = sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(4321)
        carried = read_settings(LIBRARIES)
    finally:
        sys.setrecursionlimit(sys_limit)
    assert any("settings of torch, not readable" in note for note in carried.notes)
    assert all("\n" not in note for note in carried.notes)
    assert carried.settings is not None
