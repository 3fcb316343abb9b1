"""What a run's cell has from its notebook, as text and plain files: in a process of its own.

Unpickling runs code of the values, and imports what they are made of; neither a kernel nor a
terminal is to be changed by an export.  ``python -m jupyter_ddl.standalone.unpacking RUN FOLDER``
writes ``FOLDER/found.json``, and below ``FOLDER/files`` what the program is to have beside it.
"""

from __future__ import annotations

import ast
import builtins
import sys
import types
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from jupyter_ddl.cell.decorated import is_importable
from jupyter_ddl.cell.filled import edited
from jupyter_ddl.cell.names import global_reads, read_names
from jupyter_ddl.errors import JupyterDDLError
from jupyter_ddl.ledger.reader import read_submitted
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.ranks import incell
from jupyter_ddl.ranks.payload import CapturedValues, install_modules
from jupyter_ddl.standalone.cell_text import ours_in
from jupyter_ddl.standalone.definitions import (
    Statement,
    StatementFinder,
    import_of,
    in_order,
    missing_names,
)
from jupyter_ddl.standalone.values import NotPlainError, ValueWriter
from jupyter_ddl.store.blobs import read_blob
from jupyter_ddl.store.paths import blob_dirs, ledger_path

__all__ = ["FILES", "FOUND", "MODULES", "Found", "unpack"]

FILES = "files"
FOUND = "found.json"
MODULES = "modules"
_PACKAGE = "jupyter_ddl"


class Found(msgspec.Struct):
    """What a program is to have from the notebook, in the order of its text."""

    imports: list[str] = []
    values: list[tuple[str, str]] = []
    """Names and expressions."""
    definitions: list[str] = []
    later_values: list[tuple[str, str]] = []
    """Those made of what is defined."""
    labels: dict[str, list[str]] = {}
    """Expressions of the objects that a parameter of ``--space`` chooses from."""
    names: list[str] = []
    """All that this binds."""
    ours: list[str] = []
    """Our functions that the definitions use."""
    refused: list[tuple[str, str]] = []
    """Names that no plain file holds, with why."""
    missing: list[tuple[str, str]] = []
    """Definitions, with a name that they read and nobody knows."""
    error: str = ""


def unpack(program: Program, folder: Path, over: str | None = None) -> Found:
    """Write the files of a program, and find the text of what they belong to.

    Parameters
    ----------
    over : str, optional
        Name of the mapped sequence, which may be an expression.

    Raises
    ------
    BlobMissingError
        A captured value is no longer on this host.
    Exception
        Whatever unpickling the user's objects raises.
    """
    dirs = blob_dirs()
    for module in program.modules:
        target = folder / MODULES / module.path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(read_blob(module.digest, dirs))
    install_modules(program.modules, dirs, folder.parent / "imported")
    given = incell.namespace_defaults()
    namespace = {"__builtins__": builtins, **given}
    CapturedValues(program, dirs).load_into(namespace)
    own = {
        name: value
        for name, value in namespace.items()
        if value is not given.get(name, given) and not name.startswith("__")
    }
    for name in set(given) & set(own):
        if type(own[name]).__module__ == incell.__name__:  # numbers in place of questions
            del own[name]
    return _Unpacking(program, folder, own).all(over)


class _Unpacking:
    def __init__(self, program: Program, folder: Path, own: dict[str, Any]) -> None:
        self._program = program
        self._own = own
        self._found = Found()
        self._finder = StatementFinder(program.sources)
        self._statements: dict[tuple[str, int], Statement] = {}
        self._writer = ValueWriter(folder, self._named)
        self._names_of = {id(value): name for name, value in own.items()}

    def all(self, over: str | None) -> Found:
        program = self._program
        tree = ast.parse(program.source)
        space = program.space_name
        if space is not None and space in self._own and space not in read_names(tree).free:
            self._read_labels(self._own.pop(space))
        for name, value in sorted(self._own.items()):
            if name == over or name.isidentifier():
                self._name(name, value)
        self._define()
        found = self._found
        found.imports = sorted({*found.imports, *self._writer.imports})
        defined = {name for each in self._statements.values() for name in each.names}
        values, found.values = found.values, []
        for name, text in values:
            uses = {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
            (found.later_values if uses & defined else found.values).append((name, text))
        found.names = sorted({*self._own, *defined})
        return found

    def _read_labels(self, space: Any) -> None:
        """Objects that a label stands for, where the cell itself does not read the dict."""
        for parameter, labels in self._program.space_labels.items():
            values = space
            for key in labels.path:
                values = values[key]
            texts = []
            for number, value in enumerate(values):
                try:
                    texts.append(self._writer.expression(f"{parameter}_{number}", value))
                except NotPlainError as error:
                    self._found.refused.append((f"{space_text(labels.path)}", str(error)))
            self._found.labels[parameter] = texts

    def _name(self, name: str, value: Any) -> None:
        found = self._found
        if isinstance(value, types.ModuleType):
            if value.__name__ == _PACKAGE:
                found.ours.append(f"{name} = {_PACKAGE}")
            else:
                found.imports.append(_import(name, value.__name__))
            return
        if callable(value) and is_importable(value) and "." not in value.__qualname__:
            module, original = value.__module__, value.__qualname__
            if module == incell.__name__:
                found.ours.append(f"{name} = {original}")
            else:
                renamed = "" if original == name else f" as {name}"
                found.imports.append(f"from {module} import {original}{renamed}")
            return
        try:
            text = self._named(value, name) or self._writer.expression(name, value)
        except NotPlainError as error:
            found.refused.append((name, str(error)))
            return
        if text != name:
            found.values.append((name, text))

    def _named(self, value: Any, name: str = "") -> str | None:
        """The name of what the notebook defines, whose statement is remembered."""
        if not callable(value) or isinstance(value, types.BuiltinFunctionType):
            return None
        for each in (name, self._names_of.get(id(value), ""), getattr(value, "__name__", "")):
            statement = self._finder.defining(each, value) if each else None
            if statement is not None and (isinstance(value, type) or _is_function(value)):
                self._statements[statement.place] = statement
                return each
        return None

    def _define(self) -> None:
        """The statements of definitions, with all that they read at once."""
        known = {*self._own, *incell.__all__, _PACKAGE, "display", "get_ipython"}
        waiting = list(self._statements.values())
        while waiting:
            statement = waiting.pop()
            names = sorted(statement.names)
            value = next((self._own[name] for name in names if name in self._own), None)
            for name in missing_names(statement, known):
                other = self._finder.binding(name)
                if other is not None and isinstance(other.tree, ast.Import | ast.ImportFrom):
                    self._found.imports.append(other.text.strip())
                elif other is not None:
                    waiting += [] if other.place in self._statements else [other]
                    self._statements[other.place] = other
                elif (text := import_of(name, statement, value)) is not None:
                    self._found.imports.append(text)
                else:
                    self._found.missing.append((names[0] if names else "it", name))
        self._found.definitions = [self._text(each) for each in in_order(self._statements.values())]

    def _text(self, statement: Statement) -> str:
        """The statement without what it imports of this package."""
        tree = ast.parse(statement.text)
        reads = {read.name for read in global_reads([statement.tree], lazy_annotations=True)}
        ours = ours_in(statement.text, tree, reads - {*self._own})
        self._found.ours += sorted({*ours.names, *ours.missing})
        return edited(statement.text, ours.edits)


def space_text(path: Iterable[Any]) -> str:
    """A place in the dict of ``--space``."""
    return "".join(f"[{key!r}]" for key in path)


def _is_function(value: Any) -> bool:
    return isinstance(value, types.FunctionType) or hasattr(value, "__wrapped__")


def _import(name: str, module: str) -> str:
    return f"import {module}" if name == module else f"import {module} as {name}"


def _main(run_id: str, folder: Path) -> None:
    files = folder / FILES
    files.mkdir()
    spec = read_submitted(ledger_path(run_id)).spec
    items = spec.verb.items
    try:
        found = unpack(spec.program, files, None if items is None else items.over)
    except JupyterDDLError as error:
        found = Found(error=error.message)
    except Exception as error:  # noqa: BLE001 - unpickling runs the user's code
        found = Found(error=f"{type(error).__name__}: {error}")
    (folder / FOUND).write_bytes(msgspec.json.encode(found))


if __name__ == "__main__":
    _main(sys.argv[1], Path(sys.argv[2]))
