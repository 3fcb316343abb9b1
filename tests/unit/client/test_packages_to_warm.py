"""What zygotes import ahead of need, as the process that starts the cluster has it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from jupyter_ddl.client.start import packages_to_warm


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has imported none of them."""
    monkeypatch.delenv("JUPYTER_DDL_PREWARM", raising=False)
    for name in ("numpy", "pandas", "scipy", "sklearn", "torch"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def test_a_kernel_warms_what_it_has_imported_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    assert packages_to_warm() == ()
    monkeypatch.setitem(sys.modules, "pandas", sys)
    assert packages_to_warm() == ("pandas",)


def test_a_server_warms_what_is_installed_without_importing_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "torch.py").write_text("raise RuntimeError('imported')")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert packages_to_warm(if_installed=True) == ("torch",)


def test_what_is_configured_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_DDL_PREWARM", "jax, numpy")
    assert packages_to_warm(if_installed=True) == ("jax", "numpy")
    monkeypatch.setenv("JUPYTER_DDL_PREWARM", "")
    assert packages_to_warm(if_installed=True) == ()


def test_a_cell_warms_what_it_imports_whoever_has_imported_it_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert packages_to_warm(among=("lightning", "torch", "numpy")) == ("numpy", "torch")
    monkeypatch.setenv("JUPYTER_DDL_PREWARM", "")
    assert packages_to_warm(among=("torch",)) == ()
