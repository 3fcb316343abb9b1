"""What is done to a module as soon as it has been imported."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
from collections.abc import Callable
from functools import partial
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from jupyter_ddl.ranks.imports import after_import, note_names, replace_everywhere


def test_it_is_done_once_after_the_first_import_or_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "imported_late.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    seen: list[int] = []
    finders = list(sys.meta_path)

    def act() -> None:
        seen.append(sys.modules["imported_late"].value)

    after_import("imported_late", act)
    assert importlib.util.find_spec("imported_late") is not None  # as libraries ask for others
    assert seen == []
    importlib.import_module("imported_late")
    assert seen == [1]
    assert sys.meta_path == finders
    after_import("imported_late", act)
    assert seen == [1, 1]
    monkeypatch.delitem(sys.modules, "imported_late")


def test_a_module_that_is_not_there_stays_missing() -> None:
    after_import("no_such_module_anywhere", lambda: pytest.fail("it is not there"))
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("no_such_module_anywhere")


def test_however_many_wait_for_a_module_it_is_looked_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    class Last(MetaPathFinder):
        def find_spec(self, name: str, *_: object) -> None:
            asked.append(name)

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Last()])
    done: list[int] = []
    for number in range(8):
        after_import("imported_by_and_by", partial(done.append, number))
    assert importlib.util.find_spec("imported_by_and_by") is None
    # The finder asks those behind it, and the search then comes to them by itself.
    assert asked == ["imported_by_and_by"] * 2
    (tmp_path / "imported_by_and_by.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("imported_by_and_by")
    assert done == list(range(8))
    monkeypatch.delitem(sys.modules, "imported_by_and_by")


@pytest.mark.parametrize("is_noted", [True, False])
def test_a_function_is_replaced_wherever_it_was_imported_to(
    is_noted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch() -> str:
        return "theirs"

    def other() -> str:
        return "another of this name"

    def place(name: str, function: Callable[[], str]) -> ModuleType:
        module = ModuleType(name)
        module.__dict__["fetch"] = function
        monkeypatch.setitem(sys.modules, name, module)
        return module

    early, unlike = place("early_of_test", fetch), place("unlike_of_test", other)
    note_names([fetch] if is_noted else [])
    late = place("late_of_test", fetch)
    replace_everywhere(fetch, lambda: "ours")
    assert [module.fetch() for module in (early, unlike, late)] == [
        "ours",
        "another of this name",
        "ours",
    ]


def test_what_is_replaced_again_is_not_looked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch() -> str:
        return "theirs"

    class Touched(ModuleType):
        n_looks = 0

        def __getattribute__(self, name: str) -> Any:
            if name == "__dict__":
                Touched.n_looks += 1
            return super().__getattribute__(name)

    module = Touched("touched_of_test")
    module.fetch = fetch  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "touched_of_test", module)
    note_names([fetch])
    for answer in ("alone", "in a group"):
        before, looks = module.fetch, Touched.n_looks

        @functools.wraps(fetch)
        def ours(answer: str = answer) -> str:
            return answer

        replace_everywhere(before, ours)
        assert (module.fetch(), Touched.n_looks) == (answer, looks)
