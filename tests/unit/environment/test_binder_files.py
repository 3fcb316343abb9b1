"""A directory is read as repo2docker reads it, and said wrong with file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_ddl.environment.binder import (
    binder_directory,
    has_configuration,
    read_configuration,
)
from jupyter_ddl.environment.requirements import Configuration
from jupyter_ddl.errors import EnvironmentFileError

_CONDA = """\
name: lecture
channels:
  - conda-forge
dependencies:
  - python=3.12
  - numpy >= 2.1   # arrays
  - pip
  - pip:
      - jupyter_ddl
      - Scikit_Learn>=1.5
"""


def write(root: Path, **files: str) -> Path:
    """Files by name, ``__`` for a slash and ``_dot_`` for a dot."""
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    return root


def read(root: Path, **files: str) -> Configuration:
    return read_configuration(write(root, **files))


def test_an_environment_yml_wins_over_requirements_and_runtime(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        environment_dot_yml=_CONDA,
        requirements_dot_txt="numpy==1.0\n",
        runtime_dot_txt="python-3.11",
        apt_dot_txt="graphviz\n",
    )
    assert found.buildpack == "conda"
    assert found.python == "3.12"
    assert set(found.files) == {"environment.yml", "apt.txt"}
    assert set(found.ignored) == {"requirements.txt", "runtime.txt"}
    asked = {(each.name, each.specifier, each.installer, each.line) for each in found.packages}
    assert ("numpy", ">= 2.1", "conda", 6) in asked
    assert ("scikit-learn", ">=1.5", "pip", 10) in asked
    assert ("graphviz", "", "apt", 1) in asked


def test_of_two_conda_files_the_first_is_read(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        environment_dot_yml="dependencies: [numpy]",
        environment_dot_yaml="dependencies: [scipy]",
    )
    assert [each.name for each in found.packages] == ["numpy"]
    assert found.ignored == ("environment.yaml",)


def test_a_binder_directory_hides_the_root(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        binder__requirements_dot_txt="numpy",
        binder__runtime_dot_txt="python-3.12\n",
        environment_dot_yml=_CONDA,
        setup_dot_py="raise SystemExit",
    )
    assert (found.buildpack, found.python) == ("python", "3.12")
    assert set(found.files) == {"binder/requirements.txt", "binder/runtime.txt"}
    # The directory itself may be named, too.
    assert read_configuration(tmp_path / "binder") == found


def test_binder_and_dot_binder_together_are_refused(tmp_path: Path) -> None:
    write(tmp_path, binder__apt_dot_txt="", _dot_binder__apt_dot_txt="")
    with pytest.raises(EnvironmentFileError, match=r"both binder/ and \.binder/"):
        binder_directory(tmp_path)


def test_a_dockerfile_wins_over_everything(tmp_path: Path) -> None:
    found = read(tmp_path, binder__Dockerfile="FROM x\n", binder__environment_dot_yml=_CONDA)
    assert found.buildpack == "docker"
    assert set(found.files) == {"binder/Dockerfile"}
    assert found.packages == ()


@pytest.mark.parametrize(
    ("files", "buildpack"),
    [
        ({"Project_dot_toml": "", "environment_dot_yml": _CONDA}, "julia"),
        ({"default_dot_nix": "", "environment_dot_yml": _CONDA}, "nix"),
        ({"runtime_dot_txt": "r-4.4-2025-06-01", "requirements_dot_txt": "numpy"}, "r"),
        ({"Pipfile": "[packages]\nnumpy='*'", "requirements_dot_txt": "x"}, "pipfile"),
        ({"runtime_dot_txt": "python-3.12"}, "python"),
        ({"setup_dot_py": "import setuptools"}, "python"),
        ({"pyproject_dot_toml": "[project]\nname='x'\n[build-system]\n"}, "python"),
    ],
)
def test_buildpacks_have_the_order_of_repo2docker(
    tmp_path: Path, files: dict[str, str], buildpack: str
) -> None:
    assert read(tmp_path, **files).buildpack == buildpack


def test_a_project_that_is_no_package_builds_nothing(tmp_path: Path) -> None:
    write(tmp_path, pyproject_dot_toml="[tool.ruff]\nline-length = 100\n")
    assert not has_configuration(tmp_path)
    with pytest.raises(EnvironmentFileError, match=r"no file that repo2docker builds from"):
        read_configuration(tmp_path)


@pytest.mark.parametrize(
    ("files", "place", "reason"),
    [
        ({"environment_dot_yml": "dependencies:\n  - numpy\n - scipy\n"}, 3, "not YAML"),
        ({"environment_dot_yml": "dependencies:\n  numpy: 1\n"}, 2, "not a list"),
        ({"environment_dot_yml": "- numpy\n"}, 1, "dependencies"),
        ({"environment_dot_yml": "dependencies:\n  - numpy\n  - conda: [x]\n"}, 3, "'conda'"),
        ({"environment_dot_yml": "dependencies:\n  - '!!!'\n"}, 2, "not a package"),
        ({"environment_dot_yml": "dependencies:\n- pip:\n  - ok\n  - 'a==1.0 b'\n"}, 4, "a==1.0 b"),
        ({"environment_dot_yml": "a: \x00"}, 1, "not YAML"),
        ({"requirements_dot_txt": "# first\nnumpy\nscipy>>1\n"}, 3, "scipy>>1"),
        ({"requirements_dot_txt": "numpy\n--nonsense x\n"}, 2, "--nonsense"),
        ({"requirements_dot_txt": "-r missing.txt\n"}, 1, "missing.txt"),
        ({"requirements_dot_txt": "-r requirements.txt\n"}, 1, "include each other"),
        ({"runtime_dot_txt": "3.12"}, 1, "not a runtime"),
        ({"runtime_dot_txt": "python-3.12.4"}, 1, "takes a minor version, python-3.12"),
        ({"environment_dot_yml": "channels: [[a]]"}, 1, "an entry of `channels:` is not text"),
        ({"environment_dot_yml": "variables:\n  A: [1]"}, 2, "a variable's value is not text"),
        ({"environment_dot_yml": "dependencies:\n- pip:\n  - [a]"}, 3, "of `pip:` is not text"),
        ({"environment_dot_yml": "#" * (300 << 10)}, 1, "larger than 256 KiB"),
        ({"requirements_dot_txt": "numpy", "apt_dot_txt": "ok\n; rm -rf /\n"}, 2, "Debian"),
        ({"Pipfile": "[packages]\nnumpy = = 1\n"}, 2, "not TOML"),
        ({"Pipfile_dot_lock": "{\n  'x': 1}\n"}, 2, "not JSON"),
        ({"Pipfile_dot_lock": "[]"}, 1, "not a lock"),
        ({"Pipfile_dot_lock": "[" * 100_000}, 1, "nested too deeply"),
        ({"Pipfile": "[requires]\nx=1\n[[packages]]\n"}, 3, "`packages` is not a table"),
        ({"pyproject_dot_toml": "[project]\ndependencies=1\n[build-system]"}, 2, "not a list"),
        ({"environment_dot_yml": "a: " + "[" * 10_000}, 1, "nested too deeply"),
        ({"requirements_dot_txt": "numpy\n-r \x00\n"}, 2, "cannot be read"),
        ({"pyproject_dot_toml": "[project]\ndependencies = [\n 'a b']\n[build-system]"}, 3, "a b"),
    ],
)
def test_a_wrong_file_is_named_with_its_line(
    tmp_path: Path, files: dict[str, str], place: int, reason: str
) -> None:
    with pytest.raises(EnvironmentFileError) as raised:
        read(tmp_path, **files)
    assert raised.value.line == place
    assert reason in raised.value.message
    assert "\n" not in raised.value.message
    assert f"line {place}" in raised.value.message


@pytest.mark.parametrize(
    "use", ["channels: [*a40]", "variables: {A: *a40}", "dependencies: [{pip: [*a40]}]",
            "dependencies: [*a40]", "dependencies: [{? *a40 : 1}]"],
)  # fmt: skip
def test_aliases_that_stand_for_gigabytes_are_not_written_out(tmp_path: Path, use: str) -> None:
    bomb = "x: &a0 [lol, lol]\n" + "".join(f"x{n}: &a{n + 1} [*a{n}, *a{n}]\n" for n in range(40))
    with pytest.raises(EnvironmentFileError, match=r"environment\.yml, line \d+: "):
        read(tmp_path, environment_dot_yml=bomb + use)


def test_a_list_of_packages_has_an_end(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_bytes(b"numpy\n" * (2 << 20))
    with pytest.raises(EnvironmentFileError, match=r"requirements\.txt is larger than 10 MiB"):
        read_configuration(tmp_path)


def test_a_file_that_is_no_text_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_bytes(b"numpy\n\xff\xfe\n")
    with pytest.raises(EnvironmentFileError, match=r"requirements\.txt, line 2: it is not UTF-8"):
        read_configuration(tmp_path)
