"""Attaching to frameworks when they are imported, and not before."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from jupyter_ddl.ranks.frameworks import hooks


@pytest.fixture
def library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[tuple[str, ModuleType]]]:
    """A library that the hooks know, and what was attached to."""
    (tmp_path / "ddl_library").mkdir()
    (tmp_path / "ddl_library" / "__init__.py").write_text("__version__ = '1.2'\n")
    (tmp_path / "ddl_library" / "trainer.py").write_text("class Trainer: ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", sys.meta_path.copy())
    attached: list[tuple[str, ModuleType]] = []
    ours = ModuleType("jupyter_ddl.ranks.frameworks.ddl_library")
    ours.attach = lambda module: attached.append((module.__name__, module.Trainer))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, ours.__name__, ours)
    monkeypatch.setattr(hooks, "_attached", False)
    monkeypatch.setattr(hooks, "FRAMEWORKS", {"ddl_library.trainer": "ddl_library"})
    yield attached
    for name in ("ddl_library", "ddl_library.trainer"):
        sys.modules.pop(name, None)


def test_it_attaches_behind_the_import(library: list[tuple[str, ModuleType]]) -> None:
    hooks.attach_to_frameworks()
    import ddl_library  # type: ignore[import-not-found]

    assert library == []
    from ddl_library.trainer import Trainer  # type: ignore[import-not-found]

    assert library == [("ddl_library.trainer", Trainer)]
    assert ddl_library.trainer.Trainer is Trainer


def test_it_attaches_once_to_what_is_there(library: list[tuple[str, ModuleType]]) -> None:
    from ddl_library.trainer import Trainer

    hooks.attach_to_frameworks()
    hooks.attach_to_frameworks()
    assert library == [("ddl_library.trainer", Trainer)]


def test_a_version_that_does_not_fit_is_one_sentence(
    library: list[tuple[str, ModuleType]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(module: ModuleType) -> None:
        raise AttributeError("module has no attribute 'TrainerCallback'")

    monkeypatch.setattr(sys.modules["jupyter_ddl.ranks.frameworks.ddl_library"], "attach", refuse)
    hooks.attach_to_frameworks()
    import ddl_library.trainer  # noqa: F401

    (problem,) = hooks.take_problems()
    assert problem.startswith("ddl_library 1.2 does not report by itself (AttributeError: ")
    assert hooks.take_problems() == []


def test_nothing_is_imported_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", sys.meta_path.copy())
    monkeypatch.setattr(hooks, "_attached", False)
    before = set(sys.modules)
    hooks.attach_to_frameworks()
    assert not {name.partition(".")[0] for name in set(sys.modules) - before} & hooks.LIBRARIES
