"""Files beside the notebook, and installed packages."""

import sys

import pytest

from jupyter_ddl.cell.capture import capture
from jupyter_ddl.cell.modules import read_modules
from jupyter_ddl.cell.source import read_source
from jupyter_ddl.errors import CellError
from jupyter_ddl.store.blobs import digest_of
from tests.unit.cell.cell_makers import notebook


@pytest.fixture
def folder(tmp_path):
    files = {
        "helper.py": "import json\nfrom pack.sub import deep\nimport numpy\n",
        "pack/__init__.py": "",
        "pack/sub.py": "from . import near\nfrom .inner.last import x\ndeep = 1\n",
        "pack/near.py": "",
        "pack/unused.py": "",
        "pack/inner/__init__.py": "",
        "pack/inner/last.py": "from ..near import *\nx = 1\n",
        "loose/part.py": "",
        "broken.py": "def (:\n",
        "wants.py": "\nimport not_there_either\n",
        "data/table.csv": "",
        "venv/pyvenv.cfg": "",
        "venv/pandas.py": "",
    }
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


def read(cell, folder, referenced=()):
    return read_modules(read_source(cell, 3), folder, referenced)


def test_imports_are_followed_from_file_to_file(folder):
    found = read("import helper\nimport pandas as pd\nimport os", folder)
    assert [file.path for file in found.files] == [
        "helper.py",
        "pack/__init__.py",
        "pack/inner/__init__.py",
        "pack/inner/last.py",
        "pack/near.py",
        "pack/sub.py",
    ]
    assert found.imports == ("numpy", "pandas")
    digest, data = found.contents[0]
    assert data == (folder / "helper.py").read_bytes()
    assert found.files[0].digest == digest == digest_of(data)
    assert "helper" not in sys.modules


def test_a_folder_without_init_is_followed_and_data_and_environments_are_not(folder):
    assert [file.path for file in read("import loose.part", folder).files] == ["loose/part.py"]
    for cell in ("import data", "import venv.pandas"):
        with_guard = f"try:\n    {cell}\nexcept ImportError:\n    pass"
        assert read(with_guard, folder).files == ()


def test_imports_inside_functions_count(folder):
    assert [file.path for file in read("def f():\n    import pack.near", folder).files] == [
        "pack/__init__.py",
        "pack/near.py",
    ]


def test_a_module_that_exists_nowhere_is_refused_with_its_line(folder):
    with pytest.raises(CellError, match=r"In \[3\], line 3: module 'not_there' is not installed"):
        read("import os\nimport not_there.sub", folder)
    with pytest.raises(CellError, match=r"wants\.py, line 2: module 'not_there_either'"):
        read("import wants", folder)


@pytest.mark.parametrize(
    "cell",
    [
        "try:\n    import not_there\nexcept ImportError:\n    not_there = None",
        "try:\n    import not_there\nexcept (ValueError, ModuleNotFoundError):\n    pass",
        "import sys\nif sys.platform == 'win32':\n    import not_there",
        "def f():\n    import not_there",
        "import contextlib\nwith contextlib.suppress(ImportError):\n    import not_there",
    ],
)
def test_a_guarded_import_may_be_missing(cell, folder):
    assert read(cell, folder).files == ()


def test_a_broken_file_beside_the_notebook_is_named(folder):
    with pytest.raises(CellError, match=r"broken\.py, line 1: syntax error"):
        read("import broken", folder)


def test_files_that_captured_values_come_from_travel(folder, monkeypatch):
    monkeypatch.syspath_prepend(str(folder))
    (folder / "shapes_of_mine.py").write_text("import pack.near\nclass Shape: pass\n")
    import shapes_of_mine  # type: ignore[import-not-found]

    try:
        captured = capture({"shape": shapes_of_mine.Shape()}, notebook())
    finally:
        for name in ("shapes_of_mine", "pack", "pack.near"):
            sys.modules.pop(name, None)
    paths = [file.path for file in read("1", folder, captured.modules).files]
    assert paths == ["pack/__init__.py", "pack/near.py", "shapes_of_mine.py"]


def test_a_folder_below_that_is_on_the_path_is_a_root(folder, monkeypatch):
    monkeypatch.syspath_prepend(str(folder / "pack"))
    assert [file.path for file in read("import near", folder).files] == ["near.py"]
