"""The lazy exports of the package and the stub that types them."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import jupyter_ddl

_STUB = Path(jupyter_ddl.__file__).with_suffix(".pyi")


def test_the_stub_types_every_public_name_and_no_other() -> None:
    tree = ast.parse(_STUB.read_text())
    imported = {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert imported - {"Any"} == set(jupyter_ddl._EXPORTS)


def test_a_star_import_leaves_pythons_map_and_the_notebooks_train_alone() -> None:
    names: dict[str, object] = {}
    exec("from jupyter_ddl import *", names)
    assert not {"map", "train"} & names.keys()
    assert names["search"] is jupyter_ddl.search


def test_a_public_name_is_what_it_is_whichever_package_was_imported_first() -> None:
    """Importing ``jupyter_ddl.x`` puts that package over an object of its name."""
    code = (
        "import importlib, pkgutil, jupyter_ddl\n"
        "for each in pkgutil.iter_modules(jupyter_ddl.__path__, 'jupyter_ddl.'):\n"
        "    importlib.import_module(each.name)\n"
        "for name, (module, attribute) in jupyter_ddl._EXPORTS.items():\n"
        "    meant = importlib.import_module(module)\n"
        "    meant = getattr(meant, attribute) if attribute else meant\n"
        "    assert getattr(jupyter_ddl, name) is meant, name\n"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_importing_the_package_loads_no_client_and_no_engine() -> None:
    code = (
        "import sys, jupyter_ddl\n"
        "print(*[m for m in sys.modules if m.startswith('jupyter_ddl.') or m in "
        "('dask', 'torch', 'numpy', 'asyncio', 'psutil')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.split() == []
