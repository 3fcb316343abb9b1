"""What differs is found, judged by what it can do to the cell, and fixed by the right command."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_ddl.environment.binder import read_configuration
from jupyter_ddl.environment.compare import Scope, compare, differences, unmet, verdict_line
from jupyter_ddl.protocol.facts import Facts

_BASE = {
    "numpy": "2.1.0",
    "pandas": "2.2.0",
    "torch": "2.13.0+cpu",
    "distributed": "2026.8.0",
    "cloudpickle": "3.1.0",
    "rich": "14.0",
}


def facts(**changes: object) -> Facts:
    """Facts of a usual process, with other packages or fields."""
    packages = {**_BASE, **changes.pop("packages", {})}  # type: ignore[dict-item]
    return Facts(
        **{  # type: ignore[arg-type]
            "python": "3.12.4",
            "implementation": "cpython",
            "machine": "x86_64",
            "blas": "openblas 0.3.30",
            "torch_build": "cpu",
            "cpu": ("avx2", "fma"),
            "libc": "glibc 2.39",
            "packages": {name: version for name, version in packages.items() if version},
            **changes,
        }
    )


def scope(*direct: str, needed: tuple[str, ...] = ()) -> Scope:
    return Scope(frozenset(direct), frozenset((*direct, *needed)))


_KERNEL = facts()


def test_the_same_environment_is_the_same() -> None:
    verdict = compare(_KERNEL, {"0": facts(), "1": facts()}, scope=None)
    assert (verdict.word, verdict.differences, verdict_line(verdict)) == ("same", (), "")


@pytest.mark.parametrize(
    ("other", "what"),
    [
        (facts(python="3.11.9"), "python"),
        (facts(implementation="pypy"), "python"),
        (facts(machine="aarch64"), "machine"),
        (facts(packages={"torch": "2.12.1+cpu"}), "torch"),
        (facts(packages={"torch": ""}), "torch"),
        (facts(packages={"cloudpickle": "3.0.0"}), "cloudpickle"),
        (facts(packages={"distributed": "2026.7.0"}), "distributed"),
        (facts(packages={"dask": "1"}), "dask"),
        (facts(packages={"jupyter-ddl": "0.0.1"}), "jupyter-ddl"),
        (facts(packages={"msgspec": "0.1"}), "msgspec"),
        (facts(packages={"numpy": ""}), "numpy"),
    ],
)
def test_what_breaks_a_cell_is_broken(other: Facts, what: str) -> None:
    verdict = compare(_KERNEL, {"0": other}, scope=scope("torch", "numpy"))
    assert verdict.word == "broken"
    assert verdict.differences[0].what == what
    assert verdict.differences[0].breaks


@pytest.mark.parametrize(
    ("other", "what"),
    [
        (facts(python="3.12.9"), "python"),
        (facts(packages={"numpy": "2.1.1"}), "numpy"),
        (facts(packages={"torch": "2.13.0+cu130"}), "torch"),
        (facts(torch_build="CUDA 13.0"), "torch build"),
        (facts(blas="mkl 2025"), "BLAS"),
        (facts(cpu=("avx2", "avx512f", "fma")), "CPU"),
        (facts(sources={"numpy": "editable file:///elsewhere"}), "numpy"),
    ],
)
def test_what_may_change_numbers_is_drift(other: Facts, what: str) -> None:
    verdict = compare(_KERNEL, {"0": other}, scope=scope("torch", "numpy"))
    assert verdict.word == "drift"
    assert [each.what for each in verdict.differences] == [what]


def test_what_the_cell_does_not_use_is_no_part_of_the_verdict() -> None:
    other = facts(packages={"rich": "13.0", "pandas": "", "torch": "1.0"}, blas="mkl")
    verdict = compare(_KERNEL, {"0": other}, scope=scope("json_lib"))
    assert (verdict.word, verdict.differences) == ("same", ())
    assert [each.what for each in verdict.others] == ["torch", "BLAS", "pandas", "rich"]
    whole = compare(_KERNEL, {"0": other}, scope=None)
    assert (whole.word, whole.differences, whole.others) == ("broken", verdict.others, ())


def test_what_the_cell_imports_comes_first_then_what_that_needs() -> None:
    other = facts(packages={"numpy": "1.9", "pandas": "1.0", "cloudpickle": "1.0", "rich": "1"})
    used = scope("pandas", needed=("numpy",))
    verdict = compare(_KERNEL, {"0": other}, scope=used)
    assert [each.what for each in verdict.differences] == ["cloudpickle", "pandas", "numpy"]
    assert [each.what for each in verdict.others] == ["rich"]


def test_each_of_two_workers_that_differ_from_each_other_is_told() -> None:
    here = {"0": facts(packages={"numpy": "2.0.0"}), "1": facts(packages={"numpy": ""})}
    verdict = compare(_KERNEL, here, scope=scope("numpy"))
    seen = [(each.where, each.other, each.breaks) for each in verdict.differences]
    assert seen == [("worker 1", "none", True), ("worker 0", "2.0.0", False)]
    assert verdict_line(verdict).startswith("numpy is 2.1.0 here, worker 1 lacks it (and 1 more")


def test_workers_that_differ_alike_are_one_line() -> None:
    old = facts(packages={"numpy": "2.0.0"})
    verdict = compare(_KERNEL, {"0": old, "1": _KERNEL, "2": old}, scope=scope("numpy"))
    assert [each.where for each in verdict.differences] == ["workers 0, 2"]
    assert verdict_line(verdict) == (
        "numpy is 2.1.0 here, workers 0, 2 have 2.0.0; `%cluster env sync` fixes it"
    )


def test_the_command_follows_the_cause() -> None:
    count = scope("numpy")

    def fix(kernel: Facts, worker: Facts) -> str:
        return compare(kernel, {"0": worker}, scope=count).fix

    old = {"numpy": "2.0.0"}
    assert "env sync" in fix(_KERNEL, facts(packages=old))
    assert "%cluster start" in fix(_KERNEL, facts(packages=old, held={"numpy": "2.1.0"}))
    assert fix(facts(packages=old, held={"numpy": "2.1.0"}), _KERNEL) == "restart the kernel"
    assert "--env auto" in fix(_KERNEL, facts(python="3.11.0"))


def test_what_files_ask_for_is_compared_with_the_kernel(tmp_path: Path) -> None:
    (tmp_path / "runtime.txt").write_text("python-3.11")
    (tmp_path / "requirements.txt").write_text("numpy>=2.2\npandas\nrich<14\n")
    asked = read_configuration(tmp_path)
    verdict = compare(_KERNEL, {"0": facts()}, scope=scope("numpy"), asked=asked)
    assert verdict.word == "drift"
    assert [(each.what, each.where) for each in verdict.differences] == [
        ("python", "runtime.txt"),
        ("numpy", "requirements.txt, line 1"),
    ]
    assert '%pip install "numpy>=2.2"' in verdict.differences[1].fix


def test_a_conda_version_is_a_prefix(tmp_path: Path) -> None:
    file = tmp_path / "environment.yml"
    file.write_text("dependencies: [python=3.12, numpy=2.1, pandas=2.1]")
    verdict = compare(_KERNEL, {}, scope=None, asked=read_configuration(tmp_path))
    assert [each.what for each in verdict.differences] == ["pandas"]


def test_a_range_of_pythons_is_compared_too(tmp_path: Path) -> None:
    (tmp_path / "environment.yml").write_text("dependencies: [python>=3.13]")
    (found,) = unmet(_KERNEL, read_configuration(tmp_path))
    assert (found.what, found.other, found.where) == ("python", ">=3.13", "environment.yml, line 1")
    (tmp_path / "environment.yml").unlink()
    file = tmp_path / "pyproject.toml"
    file.write_text("[project]\nrequires-python = '<3.12'\n[build-system]\n")
    (found,) = unmet(_KERNEL, read_configuration(tmp_path))
    assert (found.other, found.where) == ("<3.12", "pyproject.toml, line 2")
    file.write_text("[project]\nrequires-python = '>=3.12'\n[build-system]\n")
    assert list(unmet(_KERNEL, read_configuration(tmp_path))) == []


def test_what_is_asked_of_another_python_is_not_asked_of_this_one(tmp_path: Path) -> None:
    file = tmp_path / "requirements.txt"
    file.write_text("numpy<2 ; python_version < '3'\nabsent ; sys_platform == 'win32'\n")
    assert list(unmet(_KERNEL, read_configuration(tmp_path))) == []
    file.write_text("numpy<2 ; python_version > '3'\n")
    assert [each.what for each in unmet(_KERNEL, read_configuration(tmp_path))] == ["numpy"]


def test_condas_names_are_those_of_packages(tmp_path: Path) -> None:
    (tmp_path / "environment.yml").write_text("dependencies: [jupyter_ddl=9]")
    kernel = facts(packages={"jupyter-ddl": "0.1"})
    (found,) = unmet(kernel, read_configuration(tmp_path), scope("jupyter-ddl"))
    assert (found.kernel, found.other) == ("0.1", "=9")


# -- properties --------------------------------------------------------------------------------

_VERSIONS = st.sampled_from(["", "1.0", "1.1", "2.0+cpu", "2.0+cu130"])
_PACKAGES = st.fixed_dictionaries(dict.fromkeys([*_BASE, "dask", "msgspec"], _VERSIONS))
_FACTS = st.builds(
    lambda packages, **fields: facts(packages=packages, **fields),
    packages=_PACKAGES,
    python=st.sampled_from(["3.11.1", "3.12.1", "3.12.2"]),
    machine=st.sampled_from(["x86_64", "aarch64"]),
    blas=st.sampled_from(["", "mkl 1", "openblas 2"]),
    torch_build=st.sampled_from(["cpu", "CUDA 13.0"]),
    gpu_driver=st.sampled_from(["", "550.1", "560.2"]),
    cpu=st.sampled_from([(), ("avx2",), ("asimd",)]),
)
_SCOPES = st.builds(
    lambda direct, more: Scope(frozenset(direct), frozenset(direct | more)),
    direct=st.sets(st.sampled_from(list(_BASE)), max_size=3),
    more=st.sets(st.sampled_from(list(_BASE)), max_size=3),
)
_BADNESS = {"same": 0, "drift": 1, "broken": 2}


@given(ours=_FACTS, theirs=_FACTS, counted=_SCOPES | st.none())
def test_a_comparison_is_symmetric(ours: Facts, theirs: Facts, counted: Scope | None) -> None:
    there = {(each.what, each.rank, each.ours, each.theirs)
             for each in differences(ours, theirs, counted)}  # fmt: skip
    back = {(each.what, each.rank, each.theirs, each.ours)
            for each in differences(theirs, ours, counted)}  # fmt: skip
    assert there == back
    assert (compare(ours, {"0": theirs}, scope=counted).word == "same") == (
        compare(theirs, {"0": ours}, scope=counted).word == "same"
    )


@given(ours=_FACTS, counted=_SCOPES | st.none())
def test_an_environment_is_the_same_as_itself(ours: Facts, counted: Scope | None) -> None:
    assert differences(ours, msgspec.structs.replace(ours), counted) == []


@given(ours=_FACTS, workers=st.lists(_FACTS, min_size=1, max_size=4), one=_SCOPES, more=_SCOPES)
def test_more_workers_or_a_larger_scope_never_make_it_better(
    ours: Facts, workers: list[Facts], one: Scope, more: Scope
) -> None:
    named = {str(number): each for number, each in enumerate(workers)}
    larger = Scope(one.direct | more.direct, one.needed | more.needed)
    few = _BADNESS[compare(ours, {"0": workers[0]}, scope=one).word]
    all_of_them = _BADNESS[compare(ours, named, scope=one).word]
    assert few <= all_of_them <= _BADNESS[compare(ours, named, scope=larger).word]


@given(ours=_FACTS, theirs=_FACTS, counted=_SCOPES)
def test_every_word_has_its_reason(ours: Facts, theirs: Facts, counted: Scope) -> None:
    verdict = compare(ours, {"0": theirs}, scope=counted)
    line = verdict_line(verdict)
    assert (verdict.word == "same") == (line == "")
    assert (verdict.word == "broken") == any(each.breaks for each in verdict.differences)
    assert "\n" not in line
