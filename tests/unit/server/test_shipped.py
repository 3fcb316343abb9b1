"""The extension is on after an installation, and costs the server next to nothing."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import jupyter_ddl

ROOT = Path(__file__).resolve().parents[3]
_HEAVY = ("torch", "dask", "distributed", "optuna", "ipywidgets", "pandas", "sklearn", "scipy")


def test_the_wheel_switches_the_extension_on() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    shipped = project["tool"]["hatch"]["build"]["targets"]["wheel"]["shared-data"]
    folder = ROOT / next(
        here for here, there in shipped.items() if "jupyter_server_config" in there
    )
    config = json.loads((folder / "jupyter_ddl.json").read_text())
    assert config["ServerApp"]["jpserver_extensions"] == {"jupyter_ddl": True}


def test_jupyter_finds_the_extension() -> None:
    (point,) = jupyter_ddl._jupyter_server_extension_points()
    assert point["app"].__module__ == point["module"]
    assert point["app"].name == "jupyter_ddl"


def test_a_server_loads_no_engine_for_it() -> None:
    program = "import sys, jupyter_ddl.server.extension; print(*sys.modules)"
    out = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, text=True
    )
    assert not {name.partition(".")[0] for name in out.stdout.split()} & set(_HEAVY)
