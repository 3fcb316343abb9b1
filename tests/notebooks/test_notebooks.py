"""Every notebook runs from its first cell to its last, with a kernel and a cluster of its own.

The one about Kubernetes skips itself here; ``tests/kube`` runs it on pods.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.leaks import Home
from tests.nbval_run import NOTEBOOKS, check_notebook

_EXTRAS = {"05_large_data": ("dask_ml", "large-data")}
"""Notebooks that need what no test installs: the module, and the extra that brings it."""
_SHORTER = {
    "06_should_i_distribute": ("total_s = 2.0", "total_s = 0.5"),
    "08_parallel_training": (
        "LENGTH, BATCH, N_STEPS = 64, 32, 24",
        "LENGTH, BATCH, N_STEPS = 64, 8, 24",
    ),
}
"""A line whose figure only a reader needs as large as it is, and what stands there here."""


def test_there_are_notebooks_to_run() -> None:
    assert {"01_quickstart.ipynb", "03_ddp.ipynb"} <= {path.name for path in NOTEBOOKS}


@pytest.mark.notebooks
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_passes_under_nbval_and_leaves_nothing(notebook: Path, home: Home) -> None:
    module, extra = _EXTRAS.get(notebook.stem, ("jupyter_ddl", ""))
    if find_spec(module) is None:
        pytest.skip(f"needs {module}: pip install -e '.[{extra}]'")
    check_notebook(notebook, home, instead=_SHORTER.get(notebook.stem))
