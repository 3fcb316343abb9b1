"""What a process has is read from disk in milliseconds, and from what it had loaded before."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import sys
from pathlib import Path

import pytest

from jupyter_ddl.environment.compare import (
    KernelEnvironment,
    distributions_of,
    modules_in,
    scope_of,
)
from jupyter_ddl.store.packages import EnvironmentReader, normal_name, scan
from tests.tiny_wheels import install, make_wheel


@pytest.fixture
def site(tmp_path: Path) -> Path:
    target = tmp_path / "site"
    target.mkdir()
    return target


def test_packages_are_those_that_metadata_tells() -> None:
    told = {
        normal_name(each.metadata["Name"]): each.version
        for each in importlib.metadata.distributions()
    }
    found = {name: each.version for name, each in scan(sys.path).items()}
    assert {name: found.get(name) for name in told} == told


def test_the_rest_is_what_the_libraries_say_themselves() -> None:
    numpy = pytest.importorskip("numpy")
    torch = pytest.importorskip("torch")
    facts = EnvironmentReader(sys.path).facts()
    assert (facts.python, facts.machine) == (platform.python_version(), platform.machine())
    blas = numpy.show_config("dicts")["Build Dependencies"]["blas"]
    assert facts.blas == f"{blas['name']} {blas['version']}"
    assert facts.torch_build == (f"CUDA {torch.version.cuda}" if torch.version.cuda else "cpu")
    supported = {"AVX2": "avx2", "AVX512F": "avx512f", "FMA3": "fma"}
    features = numpy._core._multiarray_umath.__cpu_features__
    if platform.machine() == "x86_64":
        assert {supported[each] for each in supported if features[each]} <= set(facts.cpu)


def test_the_digest_changes_with_what_is_installed_and_only_then(site: Path) -> None:
    install(make_wheel(site.parent, "ddltiny", "1.0"), site)
    reader, other = EnvironmentReader([str(site)]), EnvironmentReader(["", str(site)])
    first = reader.digest
    assert first == other.digest
    os.utime(site)  # changed, and the same
    assert reader.digest == first
    install(make_wheel(site.parent, "ddltiny", "2.0"), site)
    assert reader.digest == other.digest != first
    assert reader.facts().packages == {"ddltiny": "2.0"}


def test_what_was_loaded_before_it_was_replaced_is_still_what_it_was(site: Path) -> None:
    wheel = make_wheel(site.parent, "ddltiny", "1.0")
    install(wheel, site)
    install(make_wheel(site.parent, "ddlother", "1.0"), site)
    reader = EnvironmentReader([str(site)])
    reader.note_loaded(["ddltiny"])
    for name in ("ddltiny", "ddlother"):
        install(make_wheel(site.parent, name, "2.0"), site)
    assert reader.facts().packages == {"ddltiny": "1.0", "ddlother": "2.0"}
    assert reader.facts().held == {"ddltiny": "2.0"}
    # Loaded now, it is what is there now.
    reader.note_loaded(["ddlother"])
    assert reader.facts().held == {"ddltiny": "2.0"}
    # Back to what was loaded: nothing is held any more.
    shutil.rmtree(site / "ddltiny-2.0.dist-info")
    install(wheel, site)
    assert (reader.facts().held, reader.facts().packages["ddltiny"]) == ({}, "1.0")


def test_what_was_removed_after_it_was_loaded_is_held(site: Path) -> None:
    install(make_wheel(site.parent, "ddltiny", "1.0"), site)
    reader = EnvironmentReader([str(site)])
    reader.note_loaded(["ddltiny"])
    shutil.rmtree(site / "ddltiny-1.0.dist-info")
    (site / "ddltiny.py").unlink()
    assert reader.facts().packages == {"ddltiny": "1.0"}
    assert reader.facts().held == {"ddltiny": ""}


def test_the_first_directory_of_the_path_wins(tmp_path: Path) -> None:
    for place, version in (("overlay", "2.0"), ("root", "1.0")):
        install(make_wheel(tmp_path, "ddltiny", version), tmp_path / place)
    reader = EnvironmentReader([str(tmp_path / "overlay"), str(tmp_path / "root")])
    assert reader.facts().packages == {"ddltiny": "2.0"}


def test_checkouts_and_repositories_are_told_from_indexes(site: Path) -> None:
    texts = {
        "a": '{"url": "file:///src/a", "dir_info": {"editable": true}}',
        "b": '{"url": "https://host.example/b", "vcs_info": {"vcs": "git", "commit_id": "f00"}}',
        "c": '{"url": "https://host.example/c.whl", "archive_info": {}}',
        "d": "no json",
    }
    for name, text in texts.items():
        directory = site / f"{name}-1.0.dist-info"
        directory.mkdir()
        (directory / "direct_url.json").write_text(text)
    assert EnvironmentReader([str(site)]).facts().sources == {
        "a": "editable file:///src/a",
        "b": "git+https://host.example/b@f00",
    }


def test_a_kernel_knows_what_was_replaced_before_it_looked(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib

    install(make_wheel(site.parent, "ddltiny", "1.0"), site)
    monkeypatch.syspath_prepend(str(site))
    importlib.import_module("ddltiny")
    try:
        install(make_wheel(site.parent, "ddltiny", "2.0"), site)
        facts = KernelEnvironment().facts()
    finally:
        del sys.modules["ddltiny"]
    assert (facts.packages["ddltiny"], facts.held["ddltiny"]) == ("1.0", "2.0")


def test_imports_become_packages_with_all_that_they_need() -> None:
    installed = scan(sys.path)
    assert distributions_of(["sklearn", "yaml", "numpy"], installed) == {
        "scikit-learn",
        "pyyaml",
        "numpy",
    }
    scope = scope_of(["sklearn", "not_installed_anywhere"], installed)
    assert scope.direct == {"scikit-learn"}
    assert {"numpy", "scipy", "joblib"} <= scope.needed
    assert "pytest" not in scope.needed  # of an extra


def test_a_notebook_uses_the_modules_that_its_names_come_from() -> None:
    namespace: dict[str, object] = {}
    exec("import numpy as np\nfrom pathlib import Path\nfrom msgspec import Struct", namespace)
    exec("_hidden = __import__('dask')\nx = np.zeros(1)", namespace)
    assert modules_in(namespace) == {"numpy", "msgspec"}
