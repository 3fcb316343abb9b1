"""Plug-ins by name: one wording for what is wrong, and nothing is imported for a list of names."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import jupyter_ddl
from jupyter_ddl.errors import OptionError, PluginError
from jupyter_ddl.plugins import BACKENDS, FORMS, PRUNERS, SAMPLERS, STRATEGIES, VERBS, PluginKind
from jupyter_ddl.verbs.base import parse_line

KINDS = (SAMPLERS, PRUNERS, STRATEGIES, BACKENDS, VERBS, FORMS)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def install(site: Path, package: str, kind: PluginKind, module: str, **names: str) -> None:
    """A package that offers plug-ins by entry points."""
    facts = site / f"{package}-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = "".join(f"{name} = {target}\n" for name, target in names.items())
    (facts / "entry_points.txt").write_text(f"[{kind.group}]\n{lines}")
    (site / f"{package.replace('-', '_')}.py").write_text(module)


def test_a_wrong_name_is_refused_with_all_names_and_the_nearest_one() -> None:
    with pytest.raises(OptionError) as refusal:
        PRUNERS.check("ahsa")
    known = "known: none, median, asha, hyperband"
    assert refusal.value.message == f"'ahsa' is not a pruner; {known}; did you mean 'asha'?"


def test_where_no_name_is_near_the_sentence_ends_with_what_is_known() -> None:
    with pytest.raises(OptionError) as refusal:
        STRATEGIES.check("zzz")
    assert refusal.value.message == (
        "'zzz' is not a strategy; known: ddp, fsdp, dp, local-sgd, diloco, ps-sync, "
        "ps-async, pipeline"
    )


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.noun)
def test_everything_built_in_can_be_loaded_under_its_name(kind: PluginKind) -> None:
    for name in kind.built_in:
        assert isinstance(kind.load(name), type)


def test_a_list_of_names_imports_none_of_them() -> None:
    code = (
        "import sys; from jupyter_ddl.plugins import *; "
        "[kind.names() for kind in (SAMPLERS, PRUNERS, STRATEGIES)]; STRATEGIES.check('fsdp'); "
        "print(sorted({'torch', 'optuna', 'dask', 'jupyter_ddl.studies'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", code]
    out = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    assert out.strip() == "[]"


def test_a_line_of_our_own_verbs_reads_nothing_of_what_is_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **of: asked.append(of) or ())
    assert parse_line("map --over items").verb.word == "map"
    assert asked == []
    with pytest.raises(OptionError, match="expected search, map"):
        parse_line("mapp --over items")
    assert asked


def test_a_package_adds_one_by_an_entry_point(site: Path) -> None:
    code = "from jupyter_ddl.studies.pruners import NoPruner\nclass Slow(NoPruner): ...\n"
    install(site, "slow-pruner", PRUNERS, code, slow="slow_pruner:Slow", early="slow_pruner:Slow")
    assert PRUNERS.names() == ("none", "median", "asha", "hyperband", "early", "slow")
    assert PRUNERS.check("slow") == "slow"
    assert PRUNERS.load("slow").__name__ == "Slow"


def test_no_package_takes_the_name_of_one_that_is_built_in(site: Path) -> None:
    install(site, "taker", PRUNERS, "", median="taker:Taker")
    assert PRUNERS.names() == ("none", "median", "asha", "hyperband")
    assert PRUNERS.load("median").__module__ == "jupyter_ddl.studies.pruners"


def test_a_plugin_that_is_not_one_is_told_in_one_line(site: Path) -> None:
    code = (
        "from jupyter_ddl.studies.pruners import Pruner\n"
        "class Other: ...\n"
        "class Half(Pruner):\n"
        "    def report(self, trial, step, value): ...\n"
        "    def should_prune(self, trial): ...\n"
    )
    install(
        site, "odd", PRUNERS, code, other="odd:Other", half="odd:Half", gone="no_such_module:X"
    )  # fmt: skip
    wrong = {
        "other": r"'other' \(odd:Other\) is not a class derived from jupyter_ddl\.studies\.pruners",
        "half": r"'half' \(odd:Half\) does not define finished, restarted",
        "gone": r"'gone' .* can't be loaded here: No module named 'no_such_module'; install",
    }
    for name, expected in wrong.items():
        with pytest.raises(PluginError, match=expected):
            PRUNERS.load(name)


def test_two_packages_that_offer_one_name_are_both_named(site: Path) -> None:
    install(site, "first", PRUNERS, "", twice="first:A")
    install(site, "second", PRUNERS, "", twice="second:B")
    with pytest.raises(PluginError, match=r"'twice' .*first \(first:A\), second \(second:B\)"):
        PRUNERS.load("twice")


_OF_KUBERNETES = re.compile(r"kube|\bpods?\b|daskcluster", re.IGNORECASE)
_MAY_SAY_IT = {
    "plugins.py": "names the module of each backend that is built in",
}
"""Files outside of it that mention the backend on Kubernetes, with the reason."""


def test_only_the_backend_on_kubernetes_says_kubernetes() -> None:
    package = Path(jupyter_ddl.__file__).parent
    own = package / "backends" / "kubernetes"
    files = [path for kind in ("*.py", "*.pyi", "*.js") for path in package.rglob(kind)]
    saying = {
        str(path.relative_to(package)): line
        for path in files
        if own not in path.parents and "labextension" not in path.parts
        for line in path.read_text().splitlines()
        if _OF_KUBERNETES.search(line)
    }
    assert len(files) > 100
    assert {name: line for name, line in saying.items() if name not in _MAY_SAY_IT} == {}
    assert saying.keys() == _MAY_SAY_IT.keys(), "and those that are listed do"
