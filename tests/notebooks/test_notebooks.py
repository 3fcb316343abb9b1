"""Every notebook runs from its first cell to its last, with a kernel and a cluster of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from leaks import Home

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
_TIMEOUT_S = 270
_EXTRAS = {"05_large_data": ("dask_ml", "large-data")}
"""Notebooks that need what no test installs: the module, and the extra that brings it."""


def test_there_are_notebooks_to_run() -> None:
    assert {"01_quickstart.ipynb", "03_ddp.ipynb"} <= {path.name for path in NOTEBOOKS}


@pytest.mark.notebooks
@pytest.mark.timeout(300)
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_passes_under_nbval_and_leaves_nothing(notebook: Path, home: Home) -> None:
    module, extra = _EXTRAS.get(notebook.stem, ("jupyter_ddl", ""))
    if find_spec(module) is None:
        pytest.skip(f"needs {module}: pip install -e '.[{extra}]'")
    # A copy, so that no file beside the notebook in the checkout is written.
    copy = shutil.copy(notebook, home.work)
    # An ini file of its own: this suite's options are none of the notebook's.
    (home.work / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "--nbval-lax", "--nbval-current-env", str(copy)]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", f"--nbval-cell-timeout={_TIMEOUT_S}"],
        cwd=home.work,
        env=_environment(home),
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


def _environment(home: Home) -> dict[str, str]:
    env = {**os.environ, **home.variables()}
    env.pop("PYTEST_ADDOPTS", None)
    env.pop("PYTEST_CURRENT_TEST", None)
    return env
