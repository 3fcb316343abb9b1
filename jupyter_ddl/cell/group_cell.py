"""A cell for a persistent group: its source, what is pushed, and the modules beside the notebook.

Unlike the other verbs, nothing is captured that was not named: the ranks have variables of their
own, and a cell means those.
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from jupyter_ddl.cell.capture import capture
from jupyter_ddl.cell.data_files import named_files, texts_of
from jupyter_ddl.cell.modules import read_modules
from jupyter_ddl.cell.names import check_undebugged, names_to_capture, read_names
from jupyter_ddl.cell.settings import read_settings
from jupyter_ddl.cell.source import CellSource, read_source
from jupyter_ddl.cell.work_folder import work_folder
from jupyter_ddl.errors import CellError
from jupyter_ddl.nearest import did_you_mean
from jupyter_ddl.protocol.cells import Cell
from jupyter_ddl.protocol.folder import WorkFolder

__all__ = ["AUTO", "CompiledGroupCell", "compile_group_cell", "question_cell", "transfer_cell"]


@dataclasses.dataclass(frozen=True, slots=True)
class CompiledGroupCell:
    """A cell that a group could execute.

    Attributes
    ----------
    blobs : tuple of (str, bytes or memoryview)
        Digests and bytes of the payload, its buffers and modules.
    imports : tuple of str
        Top-level modules of installed packages that it imports.
    notes : tuple of str
        Sentences worth telling the user.
    """

    cell: Cell
    blobs: tuple[tuple[str, bytes | memoryview], ...] = ()
    imports: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def compile_group_cell(
    source: str,
    namespace: Mapping[str, Any],
    *,
    cell_number: int | None = None,
    notebook_dir: Path,
    push: tuple[str, ...] = (),
    lacking: tuple[str, ...] = (),
    bring: tuple[str, ...] = (),
    keep_value: bool = False,
) -> CompiledGroupCell:
    """A cell from what follows the magic's line.

    Parameters
    ----------
    namespace
        The notebook's globals: the very dict, because its functions refer to it.
    push
        Names in it that the ranks are given before the cell runs.
    lacking
        Names that those ranks are given that have none.
    bring
        Names in the ranks' namespaces that come back.

    Raises
    ------
    CellError
        Syntax, a missing module, a breakpoint, or a name to push that the notebook does not have.
    CaptureError
        A pushed value cannot be pickled, or is too large.
    """
    read = read_source(source, cell_number, namespace)
    check_undebugged(read)
    pushed = _chosen((*push, *lacking), namespace)
    sent = transfer_cell(pushed, namespace, bring=bring, beside=(read, notebook_dir))
    folder = work_folder()
    texts = texts_of(read.tree, (), pushed)
    return CompiledGroupCell(
        Cell(
            source=read.text,
            filename=read.filename,
            pushed=sent.cell.pushed,
            sources=sent.cell.sources,
            payload=sent.cell.payload,
            buffers=sent.cell.buffers,
            modules=sent.cell.modules,
            lacking=lacking,
            settings=sent.cell.settings,
            data=named_files(texts, folder),
            bring=bring,
            keep_value=keep_value,
            folder=WorkFolder(str(folder)),
        ),
        sent.blobs,
        sent.imports,
        sent.notes,
    )


AUTO = "auto"
"""Among names to push: what the cell reads, the notebook has and the ranks lack."""


def question_cell(source: str, namespace: Mapping[str, Any]) -> CompiledGroupCell | None:
    """A cell without code that asks ranks which names of a cell they lack.

    Returns
    -------
    CompiledGroupCell or None
        None: the notebook has none that ranks could lack.

    Raises
    ------
    CellError
        A syntax error.
    """
    names = names_to_capture(read_names(read_source(source, None).tree), namespace)
    if not names:
        return None
    asking = transfer_cell({}, {})
    cell = msgspec.structs.replace(asking.cell, filename="push", asked=names)
    return dataclasses.replace(asking, cell=cell)


def transfer_cell(
    values: Mapping[str, Any],
    main_globals: Mapping[str, Any],
    *,
    bring: tuple[str, ...] = (),
    beside: tuple[CellSource, Path] | None = None,
) -> CompiledGroupCell:
    """A cell without code: it takes variables to the ranks, or brings some back.

    Parameters
    ----------
    beside
        The cell that it is for, and the notebook's folder: modules of both travel.
    """
    captured = capture(values, main_globals)
    source, folder = beside or (CellSource("", ast.parse(""), "push"), work_folder())
    modules = read_modules(source, folder, captured.modules, captured.functions)
    carried = read_settings()
    cell = Cell(
        source="",
        filename="push" if values else "pull",
        pushed=captured.names,
        sources=captured.sources,
        payload=captured.digest,
        buffers=tuple(digest for digest, _ in captured.buffers),
        modules=modules.files,
        settings=carried.settings,
        bring=bring,
    )
    blobs: list[tuple[str, bytes | memoryview]] = [
        *captured.buffers,
        *carried.blobs.items(),
        *modules.contents,
    ]
    if captured.digest is not None:
        blobs.append((captured.digest, captured.payload))
    return CompiledGroupCell(cell, tuple(blobs), modules.imports, (*carried.notes, *modules.notes))


def _chosen(names: tuple[str, ...], namespace: Mapping[str, Any]) -> dict[str, Any]:
    for name in names:
        if name not in namespace:
            hint = did_you_mean(name, namespace)
            raise CellError(f"--push {name}: the notebook has no such name{hint}", name=name)
    return {name: namespace[name] for name in names}
