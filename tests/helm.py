"""Helm, as far as tests of the chart need it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

__all__ = ["CHART", "HELM", "MISSING", "helm", "rendered"]

CHART = Path(__file__).resolve().parents[1] / "deploy" / "helm" / "jupyter-ddl"
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
_BROUGHT = _CACHE / "jupyter_ddl" / "helm" / "helm"
HELM = shutil.which("helm") or (str(_BROUGHT) if _BROUGHT.exists() else "")
MISSING = "helm is not there; `make helm` brings it"


def helm(*args: str, **variables: str) -> str:
    """What helm prints."""
    done = subprocess.run(
        [HELM, *args],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        env={**os.environ, **variables},
    )
    if done.returncode:
        raise AssertionError(f"helm {' '.join(args)}: {done.stdout}{done.stderr}")
    return done.stdout


def rendered(values: Path, namespace: str) -> list[dict[str, Any]]:
    """The objects that an installation makes."""
    told = helm("template", "jupyter-ddl", str(CHART), "-n", namespace, "-f", str(values))
    return [each for each in yaml.safe_load_all(told) if each is not None]
