"""The extension is on after an installation, and costs the server next to nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
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


def test_a_wheel_is_byte_for_byte_that_of_its_source_archive(tmp_path: Path) -> None:
    """Built twice: in the checkout, and elsewhere, at another time and by another kind of user."""
    first = _built(ROOT, tmp_path / "first", "sdist", "wheel", TZ="UTC", PYTHONHASHSEED="1")
    with tarfile.open(first["gz"]) as archive:
        archive.extractall(tmp_path / "elsewhere", filter="data")
    (unpacked,) = (tmp_path / "elsewhere").iterdir()
    for path in unpacked.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
        os.utime(path)
    second = _built(unpacked, tmp_path / "second", "wheel", TZ="Asia/Tokyo", PYTHONHASHSEED="2")
    assert first["whl"].name == second["whl"].name
    assert first["whl"].read_bytes() == second["whl"].read_bytes()


def _built(tree: Path, into: Path, *targets: str, **variables: str) -> dict[str, Path]:
    """What was built of a tree, by the ends of the names."""
    told = {"JUPYTER_DDL_NO_PANEL": "1", "PYTHONDONTWRITEBYTECODE": "1", **variables}
    asked = [word for target in targets for word in ("-t", target)]
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(into), *asked],
        cwd=tree,
        env={name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"}
        | told,
        capture_output=True,
        check=True,
    )
    return {path.name.rpartition(".")[2]: path for path in into.iterdir()}


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
