"""Figures and tables below a view: each in its place, and no more than a server lets through."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jupyter_ddl.protocol.outputs import Bundle
from jupyter_ddl.protocol.snapshot import OutputRow
from jupyter_ddl.views.outputs import OutputArea


class Cell:
    """The outputs of a cell, as a front end has them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.shown: dict[str, str] = {}
        self.n_bytes = 0
        display = pytest.importorskip("IPython.display")
        monkeypatch.setattr(display, "display", self._show)
        monkeypatch.setattr(display, "update_display", self._update)

    def _show(self, data: dict[str, Any], *, display_id: str, **_: Any) -> None:
        assert display_id not in self.shown
        self.shown[display_id] = data["text/plain"]
        self.n_bytes += len(data["text/plain"])

    def _update(self, data: dict[str, Any], *, display_id: str, **_: Any) -> None:
        assert display_id in self.shown
        self.shown[display_id] = data["text/plain"]
        self.n_bytes += len(data["text/plain"])

    @property
    def texts(self) -> list[str]:
        return list(self.shown.values())


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> Cell:
    return Cell(monkeypatch)


@pytest.fixture
def row(tmp_path: Path) -> Callable[..., OutputRow]:
    def make(file: str, text: str, at_s: float = 1.0) -> OutputRow:
        (tmp_path / file).write_bytes(msgspec.json.encode(Bundle({"text/plain": text})))
        return OutputRow(0, file, at_s)

    return make


def test_places_are_filled_replaced_and_emptied(
    cell: Cell, row: Callable[..., OutputRow], tmp_path: Path
) -> None:
    area = OutputArea(tmp_path)
    area.show([row("a", "one"), row("b", "two")])
    assert cell.texts == ["one", "two"]
    area.show([row("a", "ONE", 2.0), row("b", "not told to be new")])
    assert cell.texts == ["ONE", "two"]
    area.show([row("c", "three", 3.0)])
    assert cell.texts == ["three", ""]
    area.show([OutputRow(0, "gone", 4.0)])
    assert cell.texts == ["three", ""]


def test_what_replaces_itself_waits_while_it_is_too_much_and_the_last_never(
    cell: Cell, row: Callable[..., OutputRow], tmp_path: Path
) -> None:
    now_s = 0.0
    area = OutputArea(tmp_path, clock=lambda: now_s)
    for n in range(200):
        now_s += 0.1
        area.show([row("a", f"{n:4d}" + "x" * 1_000_000, float(n))])
    assert cell.n_bytes < 250_000 * 20 + 3_000_000
    assert cell.texts[0][:4] != " 199"

    area.show([row("a", "the end", 200.0)], is_last=True)

    assert cell.texts == ["the end"]
