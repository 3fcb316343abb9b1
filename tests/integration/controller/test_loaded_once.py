"""What a module has loaded serves all elements of a map that its process is given."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_ddl.client.api import map_cell

pytestmark = pytest.mark.integration

_MODULE = """
from functools import cache

n_loads = 0

@cache
def model():
    global n_loads
    n_loads += 1
    return 2
"""
_CELL = """
import os, time
import loaded_once
time.sleep(1.1)  # a trial of a search that takes so long has a process of its own
os.getpid(), item * loaded_once.model(), loaded_once.n_loads
"""


def test_a_model_is_loaded_once_per_process_however_long_an_element_takes(
    cluster: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "loaded_once.py").write_text(_MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    run = map_cell(_CELL, list(range(10)), namespace={}, env_check="off")
    assert [value for _, value, _ in run.values] == [2 * n for n in range(10)]
    assert {n_loads for *_, n_loads in run.values} == {1}
    assert len({pid for pid, *_ in run.values}) == 2
