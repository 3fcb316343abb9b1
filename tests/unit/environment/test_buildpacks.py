"""Which files count is what repo2docker itself says, asked about directories of all kinds."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_ddl.environment.binder import read_configuration
from jupyter_ddl.errors import EnvironmentFileError

_app = pytest.importorskip("repo2docker.app", reason="needs the extra image")

_NAMES = {
    "DockerBuildPack": "docker",
    "JuliaProjectTomlBuildPack": "julia",
    "JuliaRequireBuildPack": "refused",
    "NixBuildPack": "nix",
    "RBuildPack": "r",
    "CondaBuildPack": "conda",
    "PipfileBuildPack": "pipfile",
    "PythonBuildPack": "python",
}
_TEXTS = {
    "environment.yml": ["dependencies: [numpy]", ""],
    "environment.yaml": ["dependencies: [python=3.12]"],
    "requirements.txt": ["numpy", ""],
    "runtime.txt": ["python-3.12", "python-3", "r-4.4", "r-4.4-2025-06-01", "r-2025-06-01",
                    "julia-1.9", "", "python", "-3.12"],
    "Pipfile": ["[packages]\na = '*'"],
    "Pipfile.lock": ['{"default": {}}'],
    "pyproject.toml": ["[project]\nname = 'x'\n[build-system]", "[project]\nname = 'x'", ""],
    "setup.py": [""],
    "setup.cfg": ["[metadata]"],
    "Dockerfile": ["FROM x"],
    "apt.txt": ["graphviz"],
    "postBuild": ["true"],
    "start": ["true"],
    "Project.toml": [""],
    "JuliaProject.toml": [""],
    "REQUIRE": ["julia"],
    "default.nix": [""],
    "DESCRIPTION": ["Package: x"],
    "install.R": [""],
}  # fmt: skip
_FILES = st.dictionaries(
    st.sampled_from(["", "", "binder/", ".binder/"]).flatmap(
        lambda place: st.sampled_from([f"{place}{name}" for name in _TEXTS])
    ),
    st.integers(0, 8),
    max_size=5,
)


def _theirs() -> str:
    for buildpack in _app.Repo2Docker().buildpacks:
        try:
            if buildpack("ubuntu:24.04").detect():
                return _NAMES[buildpack.__name__]
        except (RuntimeError, ValueError):
            return "refused"
    return "refused"


def _ours(root: Path) -> str:
    try:
        return read_configuration(root).buildpack
    except EnvironmentFileError:
        return "refused"


@settings(max_examples=300)
@given(files=_FILES)
def test_the_same_buildpack_is_chosen(files: Mapping[str, int]) -> None:
    with tempfile.TemporaryDirectory() as directory, contextlib.chdir(directory):
        for name, which in files.items():
            path = Path(directory, name)
            path.parent.mkdir(exist_ok=True)
            texts = _TEXTS[path.name]
            path.write_text(texts[which % len(texts)])
        assert _ours(Path(directory)) == _theirs()
