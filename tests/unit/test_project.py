"""What holds for the whole tree: sizes, versions, documents, and what an import costs."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import pytest
import strip_notebooks

import jupyter_ddl
from jupyter_ddl import errors

ROOT = Path(__file__).resolve().parents[2]

_MAX_LINES = 700
_HEAVY = ("torch", "dask", "distributed", "optuna", "ipywidgets", "pandas", "sklearn", "scipy")
_IMPORT = """
import sys, time
before = set(sys.modules)
began = time.process_time()
import jupyter_ddl
seconds = time.process_time() - began
print(seconds, *sorted({name.partition(".")[0] for name in set(sys.modules) - before}))
"""


@cache
def tracked() -> tuple[Path, ...]:
    """The files of the checkout; without git (an unpacked sdist) there is nothing to check."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached"]
    try:
        listed = subprocess.run(command, capture_output=True, check=True, timeout=120).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this is no git checkout")
    paths = [ROOT / name for name in listed.decode().split("\0") if name]
    return tuple(path for path in paths if path.is_file())


@cache
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def texts() -> list[tuple[Path, str]]:
    found = []
    for path in tracked():
        data = path.read_bytes()
        if b"\0" not in data[:8192]:
            found.append((path.relative_to(ROOT), data.decode()))
    return found


# -- the tree ----------------------------------------------------------------------------------


def _imports() -> dict[str, set[str]]:
    """Module of the package → modules of the package that it imports anywhere in its text."""
    modules = {}
    for path in (ROOT / "jupyter_ddl").rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    found: dict[str, set[str]] = {}
    for module, path in modules.items():
        names = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {each.name for each in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                inner = {f"{node.module}.{each.name}" for each in node.names}
                names |= (inner & modules.keys()) or {node.module}
        found[module] = (names & modules.keys()) - {module}
    return found


def test_no_modules_import_each_other_in_a_circle() -> None:
    order = TopologicalSorter(_imports())
    try:
        order.prepare()
    except CycleError as circle:
        pytest.fail(" → ".join(circle.args[1]))


def test_every_folder_of_tests_belongs_to_a_target() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    folders = {path.parent.relative_to(ROOT) for path in (ROOT / "tests").rglob("test_*.py")}
    # make itself tells what its variables expand to.
    printed = subprocess.run(
        ["make", "-s", "--eval", "show: ; @echo $(UNIT) $(KERNEL) $(DEPTH) $(GROUPS)", "show"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    named = [*map(Path, printed), *map(Path, re.findall(r"pytest.* (tests/\w+)", makefile))]
    named += [Path("tests/gpu")]
    assert [str(each) for each in sorted(folders) if not {each, *each.parents} & {*named}] == []


def test_no_python_file_is_longer_than_700_lines() -> None:
    long = {
        str(path.relative_to(ROOT)): n_lines
        for path in tracked()
        if path.suffix == ".py" and (n_lines := len(path.read_text().splitlines())) > _MAX_LINES
    }
    assert long == {}


def test_no_file_of_code_is_named_for_nothing_in_particular() -> None:
    vague = {"utils", "helpers", "common", "misc", "manager"}
    named = [path for path in tracked() if path.suffix == ".py" and path.stem in vague]
    assert named == []


def test_test_files_have_different_names() -> None:
    names = [path.name for path in tracked() if path.name.startswith("test_")]
    assert sorted({name for name in names if names.count(name) > 1}) == []


def test_no_tracked_file_names_a_registry() -> None:
    # Put together here, so that this file does not contain what it looks for.
    hosts = ["pypi" + ".org", "python" + "hosted.org", "npm" + "js.org", "yarn" + "pkg.com"]
    hosts += ["pytorch" + ".org/whl", "docker" + ".io", "quay" + ".io", "conda" + ".anaconda.org"]
    assert [(str(path), host) for path, text in texts() for host in hosts if host in text] == []


def test_no_tracked_file_holds_a_path_of_somebodys_machine() -> None:
    pattern = re.compile(r"(?<![\w.$~/-])/(?:home|root|Users|work|opt|mnt)/[\w.-]+")
    allowed = {"tests/unit/test_project.py"}
    found = [
        (str(path), match)
        for path, text in texts()
        if path.as_posix() not in allowed
        for match in pattern.findall(text)
    ]
    assert found == []


def test_notebooks_lie_in_git_without_outputs() -> None:
    notebooks = sorted((ROOT / "notebooks").glob("*.ipynb"))
    assert notebooks
    assert [path.name for path in notebooks if not strip_notebooks.is_stripped(path)] == []


def test_an_executed_notebook_is_recognised_and_stripped(tmp_path: Path) -> None:
    notebook = json.loads((ROOT / "notebooks" / "01_quickstart.ipynb").read_text())
    code = next(cell for cell in notebook["cells"] if cell["cell_type"] == "code")
    code["execution_count"] = 3
    code["outputs"] = [{"output_type": "stream", "name": "stdout", "text": ["printed just now\n"]}]
    executed = tmp_path / "executed.ipynb"
    executed.write_text(json.dumps(notebook))
    assert not strip_notebooks.is_stripped(executed)
    assert "printed just now" not in strip_notebooks.stripped_text(executed)


# -- versions and imports ----------------------------------------------------------------------


def test_versions_agree() -> None:
    version = project()["project"]["version"]
    assert jupyter_ddl.__version__ == version
    headings = re.findall(r"^## \[([^\]]+)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert version in headings[:2]


def test_importing_the_package_is_quick_and_loads_nothing_heavy() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _IMPORT], capture_output=True, text=True, timeout=120, check=True
    )
    seconds, *loaded = done.stdout.split()
    assert "jupyter_ddl" in loaded
    assert sorted(set(loaded) & set(_HEAVY)) == []
    # Measured 0.001 s; the bound is the promise, and CPU time is the same on a busy machine.
    assert float(seconds) <= 0.1


# -- documents ---------------------------------------------------------------------------------


def test_every_error_code_is_explained() -> None:
    text = _doc("troubleshooting.md")
    explained = re.findall(r"^## (DDL-\d{4}) · (\w+)$", text, re.MULTILINE)
    kinds = [getattr(errors, name) for name in errors.__all__]
    assert sorted(explained) == sorted((kind.code, kind.__name__) for kind in kinds)


def test_every_error_has_a_code_of_its_own() -> None:
    codes = [getattr(errors, name).code for name in errors.__all__]
    assert len(codes) == len(set(codes))


def test_every_dependency_has_its_reason() -> None:
    text = _doc("dependencies.md")
    wanted = [*project()["project"]["dependencies"]]
    for extra in project()["project"]["optional-dependencies"].values():
        wanted += extra
    names = {re.split(r"[\[<>=!~; ]", each, maxsplit=1)[0] for each in wanted} - {"jupyter_ddl"}
    documented = set(re.findall(r"^\| `([^`]+)`", text, re.MULTILINE))
    assert names - documented == set()
    assert documented - names == set()


def test_links_between_documents_lead_somewhere() -> None:
    broken = []
    for path, text in texts():
        if path.suffix != ".md":
            continue
        broken += [
            (str(path), target)
            for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text)
            if "://" not in target and not (ROOT / path.parent / target).exists()
        ]
    assert broken == []


def test_every_promise_names_a_test_that_exists_or_says_that_it_has_none() -> None:
    rows = re.findall(r"^\| (?!promise |---)(.+) \| (.+) \|$", _doc("promises.md"), re.MULTILINE)
    assert len(rows) > 20
    wrong = [row for row in rows if row[1] != "**unproven**" and not _all_exist(row[1])]
    assert wrong == []


def test_what_people_are_told_of_each_fault_is_in_the_source_and_in_a_test_of_its_line() -> None:
    """Quoted words stand in one literal of the package; codes are those of its errors."""
    rows = re.findall(r"^\| (F\d+) \| .+ \| (.+) \| (.+) \|$", _doc("faults.md"), re.MULTILINE)
    assert len(rows) == 75
    shown = [
        *(ROOT / "jupyter_ddl").rglob("*.py"),
        *(ROOT / "jupyter_ddl/views/live").rglob("*.js"),
    ]
    shown += (ROOT / "labextension/src").rglob("*.ts*")
    source = _flat(*(each for each in shown if not {"testing", "__tests__"} & {*each.parts}))
    codes = {getattr(errors, name).code for name in errors.__all__}
    wrong = []
    for number, told, shown_by in rows:
        tests = _flat(*(ROOT / path for path in set(re.findall(r"`(tests/[^:`]+)::", shown_by))))
        words = re.findall(r"“([^”]+)”", told)
        wrong += [(number, each) for each in words if each not in source or each not in tests]
        named = re.findall(r"DDL-\d+", told)
        wrong += [(number, each) for each in named if each not in codes]
        if not (words or named or told.startswith("nothing: ")):
            wrong.append((number, told))
    assert wrong == []


def _flat(*paths: Path) -> str:
    return " ".join(" ".join(path.read_text().split()) for path in paths)


def test_every_fault_control_and_figure_is_listed_with_tests_that_exist() -> None:
    rows = re.findall(r"^\| ([FSP]\d+) \| .+ \| (.+) \|$", _doc("faults.md"), re.MULTILINE)
    ids = [f"F{n:02}" for n in range(1, 76)] + [f"S{n:02}" for n in range(1, 21)]
    assert [number for number, _ in rows] == [*ids, *(f"P{n}" for n in range(1, 21))]
    wrong = []
    for number, shown_by in rows:
        # In front of the tests may stand what they lack, or where the figures are.
        tests = re.sub(r"^(?:\*\*weak\*\*, [^:]+|\[[^]]+\]\([^)]+\)): ", "", shown_by)
        if shown_by != "**none yet**" and not _all_exist(tests):
            wrong.append((number, shown_by))
    assert wrong == []


def _all_exist(tests: str) -> bool:
    """Whether a text is names of tests with commas between them, and each of them exists."""
    named = [re.fullmatch(r"`(tests/[\w/]+\.py)::(test_\w+)`", each) for each in tests.split(", ")]
    return all(
        each is not None
        and (ROOT / each[1]).is_file()
        and f"def {each[2]}(" in (ROOT / each[1]).read_text()
        for each in named
    )


def test_every_target_of_make_says_what_it_does() -> None:
    text = (ROOT / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: (.*)$", text, re.MULTILINE)
    assert phony is not None
    explained = set(re.findall(r"^([a-z-]+):.*## .+$", text, re.MULTILINE))
    assert set(phony.group(1).split()) == explained


def _doc(name: str) -> str:
    return (ROOT / "docs" / name).read_text()
