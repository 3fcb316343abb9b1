"""Runs a notebook under nbval, as a reader would: with a kernel and clusters of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.leaks import Home

__all__ = ["NOTEBOOKS", "check_notebook"]

_ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((_ROOT / "notebooks").glob("*.ipynb"))
_TIMEOUT_S = 800
"""Below what pytest gives a test; on a quiet machine the longest takes a minute."""


def check_notebook(
    notebook: Path, home: Home, instead: tuple[str, str] | None = None, **variables: str
) -> None:
    """Run all cells of a copy; no one may raise.

    Parameters
    ----------
    instead : tuple of (str, str), optional
        A text of the notebook, and what stands there in the copy.
    **variables : str
        More of its environment; those of pytest's that name a Kubernetes are left out.
    """
    # A copy, so that no file beside the notebook in the checkout is written.
    copy = home.work / notebook.name
    text = notebook.read_text(encoding="utf-8")
    if instead is not None:
        assert text.count(instead[0]) == 1, f"{notebook.name} has no single {instead[0]!r}"
        text = text.replace(*instead)
    copy.write_text(text, encoding="utf-8")
    # An ini file of its own: this suite's options are none of the notebook's.
    (home.work / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "--nbval-lax", "--nbval-current-env", str(copy)]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", f"--nbval-cell-timeout={_TIMEOUT_S}"],
        cwd=home.work,
        env=_environment(home) | variables,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


def _environment(home: Home) -> dict[str, str]:
    env = {**os.environ, **home.variables()}
    for name in ("PYTEST_ADDOPTS", "PYTEST_CURRENT_TEST", "KUBECONFIG", "JUPYTER_IMAGE_SPEC"):
        env.pop(name, None)
    return env
