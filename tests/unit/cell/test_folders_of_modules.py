"""Modules from folders on ``sys.path`` that are not the notebook's, and editable installs."""

import importlib.machinery
import importlib.util
import site
import sys
from pathlib import Path

import pytest

from jupyter_ddl.cell import modules
from jupyter_ddl.cell.modules import read_modules
from jupyter_ddl.cell.source import read_source
from jupyter_ddl.errors import CellError
from jupyter_ddl.ranks.payload import install_modules
from jupyter_ddl.store.blobs import put_blob


@pytest.fixture
def repo(tmp_path, monkeypatch):
    """A repository with a notebook in ``notebooks``, which nothing on ``sys.path`` points to."""
    files = {
        "model_of_mine/__init__.py": "from .net import Net\n",
        "model_of_mine/net.py": "import utils_of_mine\nclass Net: pass\n",
        "model_of_mine/by_name.py": "X = 1\n",
        "utils_of_mine.py": "import numpy\n",
        "unrelated_of_mine.py": "def (:\n",
        "notebooks/near_of_mine.py": "import utils_of_mine\n",
    }
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    monkeypatch.chdir(tmp_path / "notebooks")
    before = set(sys.modules)
    yield tmp_path
    for name in [name for name in sys.modules.keys() - before if "of_mine" in name]:
        del sys.modules[name]


def read(cell, repo):
    found = read_modules(read_source(cell, 3), repo / "notebooks")
    return {file.path: Path(file.folder).name for file in found.files}, found


MINE = {"model_of_mine/__init__.py", "model_of_mine/net.py", "utils_of_mine.py"}


@pytest.mark.parametrize("entry", ["..", "{repo}"])
def test_what_a_cell_imports_from_a_folder_of_the_path_travels(entry, repo):
    sys.path.append(entry.format(repo=repo))
    found, whole = read("import model_of_mine, near_of_mine", repo)
    assert found == {
        **dict.fromkeys(MINE, repo.name),
        "near_of_mine.py": "",
    }
    assert whole.imports == ("numpy",)
    assert "model_of_mine" not in sys.modules


@pytest.mark.parametrize(
    "line",
    [
        "sys.path.append('..')",
        "sys.path.insert(0, '..')",
        "sys.path.append(os.path.abspath(os.path.join(os.getcwd(), '..')))",
        "sys.path.insert(1, str(pathlib.Path('..').resolve()))",
    ],
)
def test_a_cell_may_add_the_folder_itself(line, repo):
    found, _ = read(f"import sys, os, pathlib\n{line}\nimport model_of_mine", repo)
    assert set(found) == MINE


def test_a_module_in_no_folder_is_refused_with_the_way_out(repo):
    cell = "import sys\nsys.path.append(sys.argv[0])\nimport model_of_mine"
    with pytest.raises(CellError, match=r"line 4: module 'model_of_mine'.* to sys\.path in a cell"):
        read(cell, repo)


def test_a_folder_that_packages_were_installed_into_is_named_only(repo):
    (repo / "model_of_mine-1.0.dist-info").mkdir()
    sys.path.append(str(repo))
    found, whole = read("import model_of_mine", repo)
    assert (found, whole.imports) == ({}, ("model_of_mine",))


def test_only_what_is_imported_is_opened(repo, monkeypatch):
    """However many files lie beside it."""
    opened = []
    read_bytes = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda self: opened.append(self) or read_bytes(self))
    for number in range(300):
        (repo / f"file_{number}.py").write_text("def (:")
    sys.path.append(str(repo))
    read("import model_of_mine", repo)
    assert sorted(path.relative_to(repo.resolve()).as_posix() for path in opened) == sorted(MINE)


@pytest.fixture
def editable(repo, monkeypatch, request):
    """The repository as ``pip install -e`` leaves it: a line in a .pth file, or a finder."""
    if request.param == "a .pth file":
        packages = repo / "site-packages"
        packages.mkdir()
        (packages / "__editable__.mine.pth").write_text(f"{repo}\n")
        monkeypatch.setattr(site, "getsitepackages", lambda: [str(packages)])
        sys.path.append(str(repo))
        return request.param

    class Finder:
        places = {
            "model_of_mine": repo / "model_of_mine/__init__.py",
            "utils_of_mine": repo / "utils_of_mine.py",
        }

        @classmethod
        def find_spec(cls, name, path=None, target=None):
            if name not in cls.places:
                return None
            return importlib.util.spec_from_file_location(name, cls.places[name])

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder])
    return request.param


@pytest.mark.parametrize("editable", ["a .pth file", "a finder"], indirect=True)
def test_an_editable_install_travels(editable, repo):
    assert set(read("import model_of_mine", repo)[0]) == MINE


@pytest.mark.parametrize("editable", ["a .pth file", "a finder"], indirect=True)
def test_a_large_editable_install_is_left_to_the_environment(editable, repo, monkeypatch):
    monkeypatch.setattr(modules, "_MOST_FILES", 2)
    found, whole = read("import model_of_mine", repo)
    assert set(found) <= {"utils_of_mine.py"}
    assert "model_of_mine" in whole.imports


def test_too_many_files_of_a_folder_on_the_path_are_refused(repo, monkeypatch):
    sys.path.append(str(repo))
    monkeypatch.setattr(modules, "_MOST_BYTES", 30)
    with pytest.raises(
        CellError, match=r"'model_of_mine' in .* is too large to travel: .*pip inst"
    ):
        read("import model_of_mine", repo)


def test_a_file_that_hides_a_module_of_pythons_is_refused(repo, monkeypatch):
    (repo / "notebooks" / "sunau.py").write_text("")
    monkeypatch.delitem(sys.modules, "sunau", raising=False)
    read("import sunau", repo)  # the folder is not on the path: the notebook means Python's, too
    sys.path.insert(0, "")
    with pytest.raises(CellError, match=r"line 2: .*sunau\.py hides Python's own module 'sunau'"):
        read("import sunau", repo)
    read("import json.decoder, xml.dom, _json, sys, os.path, distutils", repo)


def test_a_file_with_the_name_of_a_module_of_pythons_is_told_where_it_is_imported(repo):
    (repo / "notebooks" / "random.py").write_text("")
    (repo / "notebooks" / "mine.py").write_text("import random, json")
    source = read_source("import mine", 3)
    (note,) = read_modules(source, repo / "notebooks").notes
    assert note.startswith(
        "`import random` means Python's own module, here and on ranks; random.py"
    )
    assert read_modules(read_source("import json", 3), repo / "notebooks").notes == ()


def test_what_was_compiled_travels_too(repo):
    name = f"model_of_mine/fast{importlib.machinery.EXTENSION_SUFFIXES[0]}"
    (repo / name).write_bytes(b"\x7fELF")
    sys.path.append(str(repo))
    assert set(read("from model_of_mine import fast", repo)[0]) == {*MINE, name}


def on_a_rank(found, tmp_path):
    """As a rank does it; returns the folder of the copy, or None."""
    sys.path.remove(str(tmp_path))
    blobs = tmp_path / "blobs"
    blobs.mkdir(exist_ok=True)
    for _, data in found.contents:
        put_blob(data, [blobs])
    return install_modules(found.files, [blobs], tmp_path / "run")


def test_a_rank_of_the_same_host_imports_from_the_folder_itself(repo):
    sys.path.append(str(repo))
    _, found = read("import model_of_mine", repo)
    assert on_a_rank(found, repo) is None
    assert sys.path[-1] == str(repo)
    assert importlib.import_module("model_of_mine.by_name").X == 1


@pytest.mark.parametrize("change", ["it was edited", "it is gone", "another one is installed"])
def test_and_from_the_files_that_were_sent_where_the_folder_is_another(change, repo):
    sys.path.append(str(repo))
    _, found = read("import model_of_mine", repo)
    if change == "it was edited":
        (repo / "model_of_mine/net.py").write_text("class Net: late = 1\n")
    elif change == "it is gone":
        (repo / "model_of_mine").rename(repo / "model_of_yours")
    else:
        (repo / "first").mkdir()
        (repo / "first/utils_of_mine.py").write_text("1 / 0")
        sys.path.insert(0, str(repo / "first"))
    copy = on_a_rank(found, repo)
    assert sys.path[0] == str(copy)
    assert not hasattr(importlib.import_module("model_of_mine").Net, "late")
    assert Path(sys.modules["utils_of_mine"].__file__).parent == copy


def test_what_functions_of_the_notebook_import_when_called_travels(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(repo)
    (repo / "called_later.py").write_text("N = 4\n")
    (repo / "called_within.py").write_text("N = 5\n")

    def outer() -> object:
        import called_later

        def inner() -> object:
            from called_within import N

            return N

        return called_later.N, inner

    source = read_source("outer()", 3)
    found = read_modules(source, repo / "notebooks", functions=[outer])
    assert [file.path for file in found.files] == ["called_later.py", "called_within.py"]
