"""Which captured values a resumed run has otherwise than the notebook."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from jupyter_ddl.client.resumed import changed_values
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.store.blobs import put_blob
from jupyter_ddl.store.paths import blob_dirs
from tests.leaks import Home
from tests.unit.cell.cell_makers import compiled, notebook

CELL = "report(a=item + lr + X.sum() + step(1) + options['b'] + config.c + len(text))"
CODE = """
import dataclasses
@dataclasses.dataclass
class Config:
    c: int = 1
    limit = 9
    @property
    def doubled(self):
        return self.c * 2
    @classmethod
    def made(cls):
        return Config(), super().__init__
def step(x):
    return x + scale
"""
NAMES = {"lr": 0.1, "scale": 2, "options": {"b": 1}, "text": "a", "items": [1, 2]}


def stored(code: str = CODE, seed: int = 0, **names: Any) -> Program:
    """What a notebook with these values would send; its blobs are stored."""
    large = np.random.default_rng(seed).random(20_000)
    namespace = notebook(code, **{**NAMES, "X": large, **names})
    namespace.setdefault("config", namespace["Config"]())
    found = compiled("map --over items", CELL, namespace)
    for digest, data in found.blobs:
        assert put_blob(data, blob_dirs()) == digest
    return found.spec.program


@pytest.mark.parametrize(
    ("now", "changed"),
    [
        ({}, ()),
        ({"lr": 0.2}, ("lr",)),
        (
            {"options": {"b": 1, "more": ["many", "strings", "that", "shift", "memos"]}},
            ("options",),
        ),
        ({"items": [1, 2, 3], "text": "b"}, ("items", "text")),
        ({"seed": 1}, ("X",)),
        ({"code": CODE.replace("x + scale", "x - scale")}, ("step",)),
        ({"code": f"\n\n# moved down\n{CODE}"}, ()),
        ({"scale": 3}, ("step",)),
        ({"code": CODE.replace("self.c * 2", "self.c + self.c")}, ("config",)),
        ({"code": CODE.replace("return Config()", "return cls()")}, ("config",)),
        ({"code": CODE.replace("limit = 9", "limit = 8")}, ("config",)),
        ({"code": CODE.replace("limit = 9", "limit = 9\n    def more(self): pass")}, ("config",)),
    ],
)
def test_what_is_other_than_it_was_is_named(home: Home, now: dict[str, Any], changed: Any) -> None:
    assert changed_values(stored(), stored(**now)) == changed


def test_values_that_are_gone_are_compared_by_kind_and_size(home: Home) -> None:
    before = stored()
    for path in (path for folder in blob_dirs() for path in folder.iterdir()):
        path.unlink()
    assert changed_values(before, stored(lr="0.1")) == ("lr",)
