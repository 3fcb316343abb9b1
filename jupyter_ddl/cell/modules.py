"""Python files beside the notebook that a cell imports, and the installed packages it needs.

Files below the notebook's folder travel with the program, by content; installed packages are
named only.  Nothing is imported to find out.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from jupyter_ddl.cell.names import catches
from jupyter_ddl.cell.source import CellSource
from jupyter_ddl.errors import CellError
from jupyter_ddl.protocol.program import ModuleFile
from jupyter_ddl.store.blobs import digest_of

__all__ = ["CellModules", "Import", "imports_of", "is_installed", "is_standard", "read_modules"]


# Import statements of a piece of code, and whether a failing one would be handled.


class Import(NamedTuple):
    """One imported module; ``names`` of a ``from`` import may be modules as well."""

    module: str
    """Dotted name; empty for ``from . import x``."""
    names: tuple[str, ...]
    level: int
    """Number of leading dots."""
    line: int
    certain: bool
    """Executed whenever the code is, and a failure ends it."""


def imports_of(tree: ast.Module) -> Iterator[Import]:
    """All imports of a module or cell, inside functions too."""
    yield from _walk(tree.body, certain=True)


def is_standard(top: str) -> bool:
    """Whether a top-level name is Python's own."""
    return top in sys.stdlib_module_names or top in sys.builtin_module_names or top == "__main__"


def is_installed(top: str) -> bool:
    """Whether a top-level module can be found here, without importing it."""
    if top in sys.modules:
        return True
    try:
        return importlib.util.find_spec(top) is not None
    except (ImportError, ValueError, AttributeError):
        return False


def _walk(nodes: list[ast.stmt], *, certain: bool) -> Iterator[Import]:
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, (), 0, node.lineno, certain)
        elif isinstance(node, ast.ImportFrom):
            names = tuple(alias.name for alias in node.names)
            yield Import(node.module or "", names, node.level, node.lineno, certain)
        elif isinstance(node, ast.Try | ast.TryStar):
            handled = catches(node, "ImportError", "ModuleNotFoundError")
            yield from _walk(node.body, certain=certain and not handled)
            for handler in node.handlers:
                yield from _walk(handler.body, certain=False)
            yield from _walk(node.orelse, certain=False)
            yield from _walk(node.finalbody, certain=certain)
        elif isinstance(node, ast.With | ast.AsyncWith):
            yield from _walk(
                node.body, certain=certain and "suppress" not in ast.dump(node.items[0])
            )
        elif isinstance(node, ast.ClassDef):
            yield from _walk(node.body, certain=certain)
        else:
            for field in ("body", "orelse"):
                inner = getattr(node, field, None)
                if isinstance(inner, list):
                    yield from _walk(inner, certain=False)
            for case in getattr(node, "cases", ()):
                yield from _walk(case.body, certain=False)


_OWN_PACKAGE = __name__.partition(".")[0]
_INSTALL_FOLDERS = frozenset({"site-packages", "dist-packages", "__pycache__", "node_modules"})


@dataclass(frozen=True, slots=True)
class CellModules:
    """What a program imports.

    Attributes
    ----------
    files : tuple of ModuleFile
        Files that travel, by path.
    contents : tuple of (str, bytes)
        Their digests and bytes.
    imports : tuple of str
        Installed top-level packages, without Python's own.
    trees : tuple of ast.Module
        The files, parsed.
    """

    files: tuple[ModuleFile, ...]
    contents: tuple[tuple[str, bytes], ...]
    imports: tuple[str, ...]
    trees: tuple[ast.Module, ...]


def read_modules(
    source: CellSource, notebook_dir: Path, referenced: Iterable[str] = ()
) -> CellModules:
    """Files and packages that a cell needs.

    Parameters
    ----------
    source
        The cell.
    notebook_dir
        Folder of the notebook: what lies below it travels.
    referenced
        Modules that captured values refer to.

    Raises
    ------
    CellError
        A module exists nowhere (fields ``module``, ``line``), or a file beside the notebook has a
        syntax error.
    """
    reader = _Reader(_search_roots(notebook_dir))
    for found in imports_of(source.tree):
        reader.follow(found, package="", where=source.where(found.line))
    for name in sorted(referenced):
        reader.refer(name)
    reader.run()
    return reader.result()


@dataclass(frozen=True, slots=True)
class _Local:
    """A Python file that travels."""

    name: str
    file: Path
    root: Path

    @property
    def package(self) -> str:
        """What relative imports in this file start from."""
        return self.name if self.file.name == "__init__.py" else self.name.rpartition(".")[0]


class _Reader:
    """Follows imports from file to file."""

    def __init__(self, roots: tuple[Path, ...]) -> None:
        self._roots = roots
        self._todo: list[_Local] = []
        self._found: dict[str, _Local] = {}
        self._bytes: dict[str, bytes] = {}
        self._trees: list[ast.Module] = []
        self._imports: set[str] = set()

    def follow(self, found: Import, package: str, where: str) -> None:
        """Take up the modules that one import statement names."""
        base = found.module
        if found.level:
            parts = package.split(".")
            parent = parts[: len(parts) - found.level + 1]
            base = ".".join([*parent, *([found.module] if found.module else [])])
        if not base:
            return
        top = base.partition(".")[0]
        if self._take(base):
            for name in found.names:
                self._take(f"{base}.{name}")
        elif self._take(top) or is_standard(top) or found.level:
            pass  # a package beside the notebook without that module, or Python's own
        elif is_installed(top):
            self._imports.add(top)
        elif found.certain:
            raise CellError(
                f"{where}: module {top!r} is not installed here and no {top}.py lies beside the "
                f"notebook; install it, or guard the import with try/except ImportError",
                module=top,
                line=found.line,
            )

    def refer(self, name: str) -> None:
        """Take up a module by the name under which values were pickled."""
        top = name.partition(".")[0]
        if self._take(name) or is_standard(top) or top == _OWN_PACKAGE:
            return
        if is_installed(top):
            self._imports.add(top)

    def run(self) -> None:
        """Read all files taken up, and what they import in turn."""
        while self._todo:
            local = self._todo.pop()
            data = local.file.read_bytes()
            self._bytes[local.name] = data
            tree = _parse(data, local)
            self._trees.append(tree)
            for found in imports_of(tree):
                self.follow(found, local.package, f"{local.file.name}, line {found.line}")

    def result(self) -> CellModules:
        files: list[ModuleFile] = []
        contents: list[tuple[str, bytes]] = []
        for name, local in self._found.items():
            data = self._bytes[name]
            digest = digest_of(data)
            path = local.file.relative_to(local.root).as_posix()
            files.append(ModuleFile(path=path, digest=digest, size_bytes=len(data)))
            contents.append((digest, data))
        order = sorted(range(len(files)), key=lambda at: files[at].path)
        return CellModules(
            files=tuple(files[at] for at in order),
            contents=tuple(contents[at] for at in order),
            imports=tuple(sorted(self._imports)),
            trees=tuple(self._trees),
        )

    def _take(self, name: str) -> bool:
        """Queue a module of the notebook's folder and the packages around it."""
        parts = name.split(".")
        for root in self._roots:
            chain = _resolve(root, parts)
            if chain is None:
                continue
            for local in chain:
                if local.name not in self._found:
                    self._found[local.name] = local
                    self._todo.append(local)
            return True
        return False


def _resolve(root: Path, parts: list[str]) -> list[_Local] | None:
    """Files of a dotted module and its packages below ``root``; None when it is not there."""
    top = root / parts[0]
    # Every worker has this package; beside a notebook it lies only in a checkout of its source.
    if parts[0] == _OWN_PACKAGE:
        return None
    if is_standard(parts[0]) or not (top.is_dir() or top.with_suffix(".py").is_file()):
        return None
    chain: list[_Local] = []
    folder = root
    for depth, part in enumerate(parts):
        name = ".".join(parts[: depth + 1])
        package, module = folder / part / "__init__.py", folder / f"{part}.py"
        last = depth == len(parts) - 1
        if package.is_file():
            chain.append(_Local(name, package, root))
        elif last and module.is_file():
            chain.append(_Local(name, module, root))
        elif not _is_namespace_package(folder / part):
            return None
        folder = folder / part
    return chain if chain or not is_installed(parts[0]) else None


def _is_namespace_package(folder: Path) -> bool:
    """A folder of Python files without ``__init__.py`` (not a folder of data)."""
    if not folder.is_dir() or (folder / "pyvenv.cfg").is_file():
        return False
    return any(path.suffix == ".py" for path in folder.iterdir())


def _search_roots(notebook_dir: Path) -> tuple[Path, ...]:
    """The notebook's folder, and folders below it that the notebook put on ``sys.path``."""
    home = notebook_dir.resolve()
    roots = [home]
    for entry in sys.path:
        path = Path(entry).resolve() if entry else home
        if path in roots or home not in path.parents or not path.is_dir():
            continue
        inner = path.relative_to(home).parts
        # A virtual environment inside the folder is installed, not beside the notebook.
        if any(part in _INSTALL_FOLDERS or part.startswith(".") for part in inner):
            continue
        if any((home.joinpath(*inner[:n]) / "pyvenv.cfg").is_file() for n in range(len(inner) + 1)):
            continue
        roots.append(path)
    return tuple(roots)


def _parse(data: bytes, local: _Local) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            return ast.parse(data, str(local.file))
        except SyntaxError as error:
            raise CellError(
                f"{local.file.name}, line {error.lineno}: syntax error: {error.msg}; the cell "
                f"imports this file",
                line=error.lineno,
            ) from None
        except ValueError as error:
            raise CellError(f"{local.file.name} is not readable as Python: {error}") from error
