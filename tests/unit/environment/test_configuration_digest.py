"""The digest follows what a configuration means, not how it is written."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_ddl.environment.binder import configuration_stamp, read_configuration

_NAMES = st.sampled_from(["numpy", "pandas", "scikit-learn", "torch", "dask", "Zarr", "a_b.c"])
_VERSIONS = st.sampled_from(["", ">=2", "==1.4.0", ">=1,<3", "~=2.1"])
_PACKAGES = st.lists(st.tuples(_NAMES, _VERSIONS), min_size=1, max_size=6, unique_by=lambda p: p[0])


def _digest(files: dict[str, str]) -> str:
    with tempfile.TemporaryDirectory() as directory:
        for name, text in files.items():
            path = Path(directory, name)
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(text.encode())
        return read_configuration(Path(directory)).digest


def _requirements(packages: Sequence[tuple[str, str]]) -> str:
    return "".join(f"{name}{version}\n" for name, version in packages)


def _conda(packages: Sequence[tuple[str, str]]) -> str:
    lines = "".join(f"  - {name}{version}\n" for name, version in packages)
    return f"channels: [conda-forge]\ndependencies:\n{lines}"


@given(packages=_PACKAGES, data=st.data())
def test_order_comments_and_line_endings_of_requirements_do_not_count(
    packages: list[tuple[str, str]], data: st.DataObject
) -> None:
    other = data.draw(st.permutations(packages))
    text = "".join(f"# why\r\n{n.upper()} {v}   # pinned\r\n\r\n" for n, v in other)
    assert _digest({"requirements.txt": _requirements(packages)}) == _digest(
        {"requirements.txt": text}
    )


@given(packages=_PACKAGES, data=st.data())
def test_order_and_comments_of_an_environment_yml_do_not_count(
    packages: list[tuple[str, str]], data: st.DataObject
) -> None:
    other = data.draw(st.permutations(packages))
    text = "# lecture\nname: mine\n" + _conda(other).replace("\n", "   # x\r\n")
    assert _digest({"environment.yml": _conda(packages)}) == _digest({"environment.yml": text})


@given(packages=_PACKAGES, data=st.data())
def test_another_package_or_version_is_another_digest(
    packages: list[tuple[str, str]], data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(packages) - 1))
    name, _ = packages[at]
    changed = [*packages[:at], (name, "==99.1"), *packages[at + 1 :]]
    fewer = [*packages[:at], *packages[at + 1 :], ("another", "")]
    for text in (_requirements, _conda):
        file = "requirements.txt" if text is _requirements else "environment.yml"
        digests = {_digest({file: text(each)}) for each in (packages, changed, fewer)}
        assert len(digests) == 3


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"binder/requirements.txt": "numpy"}, {".binder/requirements.txt": "numpy\n"}),
        ({"binder/requirements.txt": "numpy"}, {"requirements.txt": "numpy\n\n"}),
        ({"requirements.txt": "a>=1,<2"}, {"requirements.txt": "a <2, >=1"}),
        ({"requirements.txt": "a\\\n>=1"}, {"requirements.txt": "a>=1"}),
        ({"environment.yml": "dependencies:\n- a >= 1"},
         {"environment.yml": "dependencies: [a>=1]"}),
        ({"requirements.txt": "a", "apt.txt": "x\ny"},
         {"requirements.txt": "a", "apt.txt": "y\nx"}),
        ({"Pipfile": "[packages]\na='*'\nb='*'"}, {"Pipfile": "[packages]\nb = '*'\na = '*' # c"}),
        # What is in the directory and in no way of the image.
        ({"requirements.txt": "a", "code.py": "1"}, {"requirements.txt": "a", "code.py": "2"}),
        ({"requirements.txt": ".", "lesson.ipynb": "1"},
         {"requirements.txt": ".", "lesson.ipynb": "2"}),
        ({"requirements.txt": "a", "postBuild": "x # more.sh", "more.sh": "1"},
         {"requirements.txt": "a", "postBuild": "x # more.sh", "more.sh": "2"}),
        ({"Dockerfile": "FROM x\nCOPY --from=y /a b /\nADD https://h/a /\n# COPY . .", "a": "1"},
         {"Dockerfile": "FROM x\nCOPY --from=y /a b /\nADD https://h/a /\n# COPY . .", "a": "2"}),
    ],
)  # fmt: skip
def test_these_mean_the_same(one: dict[str, str], other: dict[str, str]) -> None:
    assert _digest(one) == _digest(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"requirements.txt": "a"}, {"requirements.txt": "a", "apt.txt": "x"}),
        ({"requirements.txt": "a"}, {"requirements.txt": "a", "runtime.txt": "python-3.12"}),
        ({"requirements.txt": "a", "postBuild": "x"}, {"requirements.txt": "a", "postBuild": "y"}),
        ({"requirements.txt": "a"}, {"environment.yml": "dependencies: [a]"}),
        ({"requirements.txt": "."}, {"requirements.txt": ".", "code.py": "x = 1"}),
        ({"setup.py": "", "m.py": "x = 1"}, {"setup.py": "", "m.py": "x = 2"}),
        ({"requirements.txt": "-i https://one\na"}, {"requirements.txt": "-i https://two\na"}),
        ({"environment.yml": "channels: [a, b]\ndependencies: [x]"},
         {"environment.yml": "channels: [b, a]\ndependencies: [x]"}),
        ({"environment.yml": "dependencies: [{pip: [-e .]}]", "pyproject.toml": "[project]"},
         {"environment.yml": "dependencies: [{pip: [-e .]}]", "pyproject.toml": "[tool.x]"}),
        ({"environment.yml": "dependencies: [{pip: [-r pip.txt]}]", "pip.txt": "a"},
         {"environment.yml": "dependencies: [{pip: [-r pip.txt]}]", "pip.txt": "b"}),
        ({"Pipfile": "[packages]\na = {path = '.'}", "m.py": "1"},
         {"Pipfile": "[packages]\na = {path = '.'}", "m.py": "2"}),
        ({"requirements.txt": "a", "postBuild": "bash etc/more.sh", "etc/more.sh": "1"},
         {"requirements.txt": "a", "postBuild": "bash etc/more.sh", "etc/more.sh": "2"}),
        ({"requirements.txt": "a", "postBuild": "pip install wheels/*.whl", "wheels/a.whl": "1"},
         {"requirements.txt": "a", "postBuild": "pip install wheels/*.whl", "wheels/a.whl": "2"}),
        ({"Dockerfile": "FROM x\nCOPY a \\\n b /src/", "b": "1"},
         {"Dockerfile": "FROM x\nCOPY a \\\n b /src/", "b": "2"}),
        ({"binder/Dockerfile": "FROM x\nadd --chown=1 [\"b c\", \"/src/\"]", "b c": "1"},
         {"binder/Dockerfile": "FROM x\nadd --chown=1 [\"b c\", \"/src/\"]", "b c": "2"}),
        ({"Dockerfile": "FROM x\nCOPY . .", "deep/down": "1"},
         {"Dockerfile": "FROM x\nCOPY . .", "deep/down": "2"}),
        ({"Dockerfile": "FROM x\nRUN --mount=type=bind,source=a,target=/a pip", "a": "1"},
         {"Dockerfile": "FROM x\nRUN --mount=type=bind,source=a,target=/a pip", "a": "2"}),
    ],
)  # fmt: skip
def test_these_mean_different_things(one: dict[str, str], other: dict[str, str]) -> None:
    assert _digest(one) != _digest(other)


def test_looking_whether_files_have_changed_makes_no_path_of_each(tmp_path: Path) -> None:
    n_calls = 0

    def note(_frame: FrameType, event: str, _: Any) -> None:
        nonlocal n_calls
        n_calls += event == "call"

    (tmp_path / "environment.yml").write_text("name: x\n")
    sys.setprofile(note)
    try:
        stamp = configuration_stamp(tmp_path)
    finally:
        sys.setprofile(None)
    assert [each[0] for each in stamp[1:]] == ["environment.yml"]  # type: ignore[index]
    assert n_calls <= 200  # of paths it would be five times as many, before each cell
