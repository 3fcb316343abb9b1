"""Python files of one's own that a cell imports, and the installed packages it needs.

Files below the notebook's folder, and what nobody has installed of other folders on ``sys.path``,
travel with the program, by content; installed packages are named only.  Nothing is imported to
find out, and no folder is walked: each import is looked up as Python would.
"""

from __future__ import annotations

import ast
import dis
import functools
import importlib.machinery
import importlib.util
import os
import site
import sys
import sysconfig
import types
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from jupyter_ddl.cell.names import catches
from jupyter_ddl.cell.source import CellSource
from jupyter_ddl.errors import CellError
from jupyter_ddl.formats import format_bytes
from jupyter_ddl.protocol.program import ModuleFile
from jupyter_ddl.store.blobs import digest_of

__all__ = [
    "CellModules",
    "Import",
    "ModuleReader",
    "imports_of",
    "is_installed",
    "is_standard",
    "read_modules",
]


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


def imports_in(code: types.CodeType) -> Iterator[Import]:
    """Imports of a function, told by its code; its source may not be there."""
    for step in dis.get_instructions(code):
        if step.opname == "IMPORT_NAME":
            module = step.argval
            yield Import(module, (), 0, 0, certain=False)
        elif step.opname == "IMPORT_FROM":
            yield Import(module, (step.argval,), 0, 0, certain=False)
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            yield from imports_in(part)


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
_EVERYWHERE = frozenset({_OWN_PACKAGE, "cloudpickle"})
"""What values are pickled with refers to these; every worker has them."""
_INSTALL_FOLDERS = frozenset({"site-packages", "dist-packages"})
_SUFFIXES = (".py", *importlib.machinery.EXTENSION_SUFFIXES)
_MOST_FILES = 1_000
_MOST_BYTES = 64 * 2**20


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
        Those of the files that may call a function of ours, parsed.
    notes : tuple of str
        Sentences worth telling the user.
    data : tuple of ModuleFile
        Other files beside the notebook that are named, without digests: they were not read.
    file_names : tuple of str
        Strings that may be relative names of files, which trials write.
    """

    files: tuple[ModuleFile, ...]
    contents: tuple[tuple[str, bytes], ...]
    imports: tuple[str, ...]
    trees: tuple[ast.Module, ...]
    notes: tuple[str, ...] = ()
    data: tuple[ModuleFile, ...] = ()
    file_names: tuple[str, ...] = ()


def read_modules(
    source: CellSource,
    notebook_dir: Path,
    referenced: Iterable[str] = (),
    functions: Iterable[types.FunctionType] = (),
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
    functions
        Of the notebook, which travel by value: what they import when they are called.

    Raises
    ------
    CellError
        A module exists nowhere, hides one of Python's own (fields ``module``, ``line``) or has a
        syntax error, or all files together are too many.
    """
    return ModuleReader(source, notebook_dir).read(referenced, functions)


@dataclass(frozen=True, slots=True)
class _Local:
    """A file that travels."""

    name: str
    file: Path
    root: Path

    @property
    def package(self) -> str:
        """What relative imports in this file start from."""
        return self.name if self.file.name == "__init__.py" else self.name.rpartition(".")[0]


class ModuleReader:
    """Follows imports from file to file: those of a cell first, then those of its values.

    For who wants to know of a module that is missing before values are looked at; parameters and
    errors are those of `read_modules`.
    """

    def __init__(self, source: CellSource, notebook_dir: Path) -> None:
        before, self._behind = _added_folders(source.tree)
        self._source = source
        self._home = notebook_dir.resolve()
        self._before = (self._home, *before)
        self._folders = _Folders()
        self._roots: dict[str, Path | None] = {}
        self._taken: dict[str, bool] = {}
        self._pythons_own: set[str] = set()
        self._todo: list[_Local] = []
        self._found: dict[str, _Local] = {}
        self._bytes: dict[str, bytes] = {}
        self._n_bytes = 0
        self._trees: list[ast.Module] = []
        self._imports: set[str] = set()
        self._left: set[str] = set()
        self._notes: list[str] = []
        for found in imports_of(source.tree):
            self._follow(found, package="", where=source.where(found.line))
        self._run()

    def read(
        self, referenced: Iterable[str] = (), functions: Iterable[types.FunctionType] = ()
    ) -> CellModules:
        """What the cell, and these values of the notebook, need."""
        for name in sorted(referenced):
            self._refer(name)
        for function in functions:
            for found in imports_in(function.__code__):
                self._follow(found, package="", where=self._source.filename)
        self._run()
        return self._result()

    def _follow(self, found: Import, package: str, where: str) -> None:
        """Take up the modules that one import statement names."""
        base = found.module
        if found.level:
            parts = package.split(".")
            parent = parts[: len(parts) - found.level + 1]
            base = ".".join([*parent, *([found.module] if found.module else [])])
        if not base:
            return
        top = base.partition(".")[0]
        if is_standard(top) and not found.level:
            if top not in self._pythons_own:
                _check_not_hidden(top, found, where)
                self._pythons_own.add(top)
                if (same := self._folders.resolve(self._home, [top])) is not None:
                    self._notes.append(_same_name(top, same))
        elif self._take(base):
            for name in found.names:
                self._take(f"{base}.{name}")
        elif self._take(top) or is_standard(top) or found.level:
            pass  # a package of one's own without that module
        elif is_installed(top):
            self._imports.add(top)
        elif found.certain:
            raise CellError(
                f"{where}: module {top!r} is not installed here, and no {top}.py lies beside the "
                f"notebook or in a folder of sys.path; install it, add its folder to sys.path in a "
                f"cell above, or guard the import with try/except ImportError",
                module=top,
                line=found.line,
            )

    def _refer(self, name: str) -> None:
        """Take up a module by the name under which values were pickled."""
        top = name.partition(".")[0]
        if is_standard(top) or top in _EVERYWHERE or self._take(name):
            return
        if is_installed(top):
            self._imports.add(top)

    def _run(self) -> None:
        """Read all files taken up, and what they import in turn."""
        while self._todo:
            local = self._todo.pop()
            top = local.name.partition(".")[0]
            if top in self._left:
                continue
            data = local.file.read_bytes()
            self._bytes[local.name] = data
            self._n_bytes += len(data)
            if self._n_bytes > _MOST_BYTES or len(self._bytes) > _MOST_FILES:
                self._leave_or_refuse()
                continue
            if local.file.suffix != ".py":
                continue
            imports, tree = _parse(data, local)
            if tree is not None:
                self._trees.append(tree)
            for found in imports:
                self._follow(found, local.package, f"{local.file.name}, line {found.line}")

    def _leave_or_refuse(self) -> None:
        """There are too many files: leave the package that has most of them to the workers' own.

        Raises
        ------
        CellError
            It is installed nowhere.
        """
        sizes: dict[str, list[int]] = {}
        for name, data in self._bytes.items():
            sizes.setdefault(name.partition(".")[0], []).append(len(data))
        top = max(sizes, key=lambda each: (sum(sizes[each]), len(sizes[each])))
        root = next(local.root for local in self._found.values() if _top(local.name) == top)
        if root == self._home or not _is_of_environment(root):
            raise CellError(
                f"{top!r} in {root} is too large to travel: more than {_MOST_FILES:,} files or "
                f"{format_bytes(_MOST_BYTES)} ({len(sizes[top]):,} files, "
                f"{format_bytes(sum(sizes[top]))} so far); install it (pip install -e {root})",
                module=top,
            )
        self._left.add(top)
        self._imports.add(top)
        self._taken.clear()
        for name in [name for name in self._found if _top(name) == top]:
            self._n_bytes -= len(self._bytes.pop(name, b""))
            del self._found[name]

    def _result(self) -> CellModules:
        files: list[ModuleFile] = []
        contents: list[tuple[str, bytes]] = []
        for name, local in self._found.items():
            data = self._bytes[name]
            digest = digest_of(data)
            path = local.file.relative_to(local.root).as_posix()
            folder = "" if local.root == self._home else str(local.root)
            files.append(ModuleFile(path=path, digest=digest, size_bytes=len(data), folder=folder))
            contents.append((digest, data))
        order = sorted(range(len(files)), key=lambda at: files[at].path)
        return CellModules(
            files=tuple(files[at] for at in order),
            contents=tuple(contents[at] for at in order),
            imports=tuple(sorted(self._imports)),
            trees=tuple(self._trees),
            notes=tuple(self._notes),
        )

    def _take(self, name: str) -> bool:
        """Queue a module that travels, and the packages around it; return whether it does."""
        if name not in self._taken:
            self._taken[name] = self._is_taken(name)
        return self._taken[name]

    def _is_taken(self, name: str) -> bool:
        parts = name.split(".")
        # Every worker has this package; a checkout of its source is none of the notebook's.
        if parts[0] == _OWN_PACKAGE or is_standard(parts[0]) or parts[0] in self._left:
            return False
        for root in self._candidates(parts[0]):
            chain = self._folders.resolve(root, parts)
            if chain is None:
                continue
            for local in chain:
                if local.name not in self._found:
                    self._found[local.name] = local
                    self._todo.append(local)
            return True
        return False

    def _candidates(self, top: str) -> Iterator[Path]:
        yield from self._before
        if top not in self._roots:
            self._roots[top] = _own_folder(top)
        found = self._roots[top]
        if found is not None:
            yield found
        yield from self._behind


def _top(name: str) -> str:
    return name.partition(".")[0]


class _Folders:
    """Where modules lie; each place is looked at once, as most imports name the same packages."""

    def __init__(self) -> None:
        self._files: dict[tuple[Path, str], Path | None] = {}
        self._packages: dict[tuple[Path, str], Path | None] = {}

    def resolve(self, root: Path, parts: list[str]) -> list[_Local] | None:
        """Files of a dotted module and its packages below ``root``; None when it is not there."""
        chain: list[_Local] = []
        folder = root
        for depth, part in enumerate(parts):
            name = ".".join(parts[: depth + 1])
            is_last = depth == len(parts) - 1
            if (package := self._package(folder, part)) is not None:
                chain.append(_Local(name, package, root))
            elif is_last and (module := self._module(folder, part)) is not None:
                chain.append(_Local(name, module, root))
            elif not _is_namespace_package(folder / part):
                return None
            folder = folder / part
        return chain if chain or not is_installed(parts[0]) else None

    def _package(self, folder: Path, name: str) -> Path | None:
        """The file of a regular package."""
        if (folder, name) not in self._packages:
            file = folder / name / "__init__.py"
            self._packages[folder, name] = file if file.is_file() else None
        return self._packages[folder, name]

    def _module(self, folder: Path, name: str) -> Path | None:
        """A module's source, or else what was compiled for this Python."""
        if (folder, name) not in self._files:
            self._files[folder, name] = next(
                (file for suffix in _SUFFIXES if (file := folder / f"{name}{suffix}").is_file()),
                None,
            )
        return self._files[folder, name]


def _is_namespace_package(folder: Path) -> bool:
    """A folder of Python files without ``__init__.py`` (not a folder of data)."""
    if not folder.is_dir() or (folder / "pyvenv.cfg").is_file():
        return False
    return any(path.suffix == ".py" for path in folder.iterdir())


# Where Python finds a module, and whether that is a folder of the user's own.


def _own_folder(top: str) -> Path | None:
    """The folder on ``sys.path``, or of an editable install, that a module is imported from.

    None for installed ones, and for those that Python does not find.
    """
    for place in _places(top):
        root = place.parent
        if place.stem == top.partition(".")[0] and not _is_installed_in(root):
            return root
    return None


def _places(top: str) -> Iterator[Path]:
    """Folders of a package, or the file of a module, as Python would import it."""
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError, AttributeError):
        return
    if spec is None:
        return
    folders = spec.submodule_search_locations
    for each in [spec.origin] if folders is None else list(folders):
        place = Path(each).resolve() if each else None
        if place is not None and (place.is_dir() or place.is_file()):
            yield place


def _is_installed_in(folder: Path) -> bool:
    """Whether an installer puts packages into this folder."""
    if not _INSTALL_FOLDERS.isdisjoint(folder.parts) or folder in _standard_folders():
        return True
    return _has_installed(folder, folder.stat().st_mtime_ns)


@functools.lru_cache(256)
def _has_installed(folder: Path, _changed_ns: int) -> bool:
    # As `pip install --target` leaves it: also such a folder may be on the path.
    # Names only: such a folder may hold any number of files.
    return any(name.endswith(".dist-info") for name in os.listdir(folder))  # noqa: PTH208


@functools.cache
def _standard_folders() -> frozenset[Path]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    folders = [Path(sysconfig.get_path(name)).resolve() for name in names]
    return frozenset((*folders, *(folder / "lib-dynload" for folder in folders)))


def _is_of_environment(root: Path) -> bool:
    """Whether an editable install, and not the notebook, has Python import from this folder."""
    if not any(Path(entry).resolve() == root for entry in sys.path if entry):
        return True  # an install's own finder does it
    for folder in (*site.getsitepackages(), site.getusersitepackages()):
        for file in Path(folder).glob("*.pth"):
            lines = file.read_text(errors="replace").splitlines()
            if any(line.strip() and Path(line.strip()).resolve() == root for line in lines):
                return True
    return False


def _check_not_hidden(top: str, found: Import, where: str) -> None:
    """Refuse a file of the user's that hides one of Python's own modules."""
    if top in sys.builtin_module_names or top == "__main__":
        return
    place = next(_places(top), None)
    if place is None or _is_installed_in(place.parent):
        return
    raise CellError(
        f"{where}: {place} hides Python's own module {top!r}, which ranks have loaded by the time "
        f"the cell begins; rename it",
        module=top,
        line=found.line,
    )


def _same_name(top: str, files: list[_Local]) -> str:
    file = files[0].file.name if files else top
    return (
        f"`import {top}` means Python's own module, here and on ranks; {file} beside the notebook "
        f"has its name and is not used: rename it if you mean it"
    )


def _added_folders(tree: ast.Module) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Folders that the cell itself puts before or behind those of ``sys.path``.

    Told by the literals of the argument, as in ``os.path.abspath("..")`` or ``Path("..") / "src"``.
    """
    before: list[Path] = []
    behind: list[Path] = []
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        if ast.unparse(node.func.value) != "sys.path" or not node.args:
            continue
        texts = [
            (each.lineno, each.col_offset, each.value)
            for each in ast.walk(node.args[-1])
            if isinstance(each, ast.Constant) and isinstance(each.value, str)
        ]
        if not texts:
            continue
        folder = Path(*(text for _, _, text in sorted(texts))).resolve()
        if node.func.attr == "insert":
            before.append(folder)
        elif node.func.attr == "append":
            behind.append(folder)
    return tuple(before), tuple(behind)


# What a file imports.


class _Code(NamedTuple):
    imports: tuple[Import, ...]
    tree: ast.Module | None
    """Of a file that may call ``report``, ``checkpoint`` or ``resume``; trees are large."""


def _parse(data: bytes, local: _Local) -> _Code:
    try:
        return _code_of(data)
    except SyntaxError as error:
        raise CellError(
            f"{local.file.name}, line {error.lineno}: syntax error: {error.msg}; the cell "
            f"imports this file",
            line=error.lineno,
        ) from None
    except ValueError as error:
        raise CellError(f"{local.file.name} is not readable as Python: {error}") from error


@functools.lru_cache(2 * _MOST_FILES)
def _code_of(data: bytes) -> _Code:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        tree = ast.parse(data)
    calls_ours = any(name in data for name in (b"report", b"checkpoint", b"resume"))
    return _Code(tuple(imports_of(tree)), tree if calls_ours else None)
