"""Each recipe of docs/extending.md passes its own tests from a folder of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from jupyter_ddl.backends.base import backend_plugin
from jupyter_ddl.cell.draft import CellContext
from jupyter_ddl.commands.cluster import CLUSTER
from jupyter_ddl.plugins import BACKENDS, PRUNERS, SAMPLERS, STRATEGIES, VERBS
from jupyter_ddl.verbs.base import parse_line
from tests.integration.conftest import own_dask_config  # noqa: F401 - for every test here

_PAGE = Path(__file__).parents[2] / "docs" / "extending.md"
_FILE = re.compile(r'^```\w+ title="([a-z]+)/([\w.]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
_RECIPES = ("echo", "golden", "patient", "averaging", "modest")


def write(recipe: str, folder: Path) -> list[Path]:
    """Write the files of a recipe, and say by entry points that it is installed; its tests."""
    files = {name: text for of, name, text in _FILE.findall(_PAGE.read_text()) if of == recipe}
    for name, text in files.items():
        (folder / name).write_text(text)
    project = tomllib.loads(files["pyproject.toml"])["project"]
    facts = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    lines = [
        line
        for group, points in project["entry-points"].items()
        for line in (f"[{group}]", *(f"{name} = {target}" for name, target in points.items()))
    ]
    (facts / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return [folder / name for name in files if name.startswith("test_")]


@pytest.mark.integration
@pytest.mark.parametrize("recipe", _RECIPES)
def test_a_recipe_passes_the_tests_of_its_kind(recipe: str, tmp_path: Path) -> None:
    (test,) = write(recipe, tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", test.name],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=380,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"[1-9]\d* passed", done.stdout)


def test_every_recipe_is_tested() -> None:
    assert {of for of, _, _ in _FILE.findall(_PAGE.read_text())} == set(_RECIPES)


def test_what_a_recipe_adds_is_known_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = zip(_RECIPES, (VERBS, SAMPLERS, PRUNERS, STRATEGIES, BACKENDS), strict=True)
    for recipe, kind in kinds:
        assert recipe not in kind.names()
        folder = tmp_path / recipe
        folder.mkdir()
        write(recipe, folder)
        monkeypatch.syspath_prepend(str(folder))
        assert recipe in kind.names()


def test_a_packages_sampler_runs_where_the_code_of_cells_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("golden", tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    verb, options = parse_line("search --metric acc --sampler golden")
    cell = "acc = uniform(0, 1)\n"
    draft = verb.compile(cell, {}, CellContext(1, tmp_path), options)
    study = draft.spec.verb.study
    assert study is not None
    chosen = study.sampler
    assert (chosen.name, chosen.in_notebook) == ("golden_sampler:GoldenSampler", False)


def test_a_packages_backend_brings_its_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("modest", tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    command, values = CLUSTER.parse(["start", "modest", "--level", "12", "-n", "3"])
    assert (values["level"], values["workers"]) == (12, 3)
    assert "--level" in command.options()
    assert backend_plugin("modest").settings(level=12) is not None
