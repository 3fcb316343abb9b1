"""Where a cell becomes a program: its values and modules are gathered, whichever verb runs it."""

from __future__ import annotations

import ast
import dataclasses
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jupyter_ddl.cell.capture import Captured, capture
from jupyter_ddl.cell.data_files import named_files, possible_names, texts_of
from jupyter_ddl.cell.draft import CellContext
from jupyter_ddl.cell.modules import CellModules, ModuleReader
from jupyter_ddl.cell.names import CellNames, check_defined, names_to_capture
from jupyter_ddl.cell.options import CellOptions
from jupyter_ddl.cell.patches import mentioned_names, patches_note
from jupyter_ddl.cell.settings import read_settings
from jupyter_ddl.cell.source import CellSource
from jupyter_ddl.cell.space import CellSpace
from jupyter_ddl.cell.work_folder import work_folder
from jupyter_ddl.errors import CellError
from jupyter_ddl.nearest import did_you_mean
from jupyter_ddl.protocol.program import Program

__all__ = ["CellParts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CellParts:
    """A cell held against its notebook.

    Attributes
    ----------
    namespace : Mapping
        The notebook's names, as the cell is to see them.
    main_globals : Mapping
        The notebook's very globals: functions are known by the identity of theirs.
    """

    options: CellOptions
    source: CellSource
    names: CellNames
    namespace: Mapping[str, Any]
    main_globals: Mapping[str, Any]
    notebook_dir: Path

    @classmethod
    def of(
        cls,
        options: CellOptions,
        source: CellSource,
        names: CellNames,
        namespace: Mapping[str, Any],
        context: CellContext,
        instead: Mapping[str, Any] | None = None,
    ) -> CellParts:
        """The parts of a cell; ``instead`` holds values that it is to see in place of others."""
        return cls(
            options=options,
            source=source,
            names=names,
            namespace={**namespace, **instead} if instead else namespace,
            main_globals=namespace if context.main_globals is None else context.main_globals,
            notebook_dir=context.notebook_dir,
        )

    def gather(
        self, *, known: Iterable[str], injected: Iterable[str], also: Iterable[str]
    ) -> tuple[Captured, CellModules]:
        """Values and modules that travel.

        Parameters
        ----------
        known
            Names that a rank provides (hyper-parameters, the element).
        injected
            Names bound before the cell runs; the notebook's values of them stay here.
        also
            Names that travel although the cell does not read them.
        """
        known, injected = tuple(known), tuple(injected)
        check_defined(self.source, self.names, self.namespace, known)
        self._check_bring(known)
        wanted = names_to_capture(self.names, self.namespace, injected)
        pushed = self._pushed()
        order = sorted({*wanted, *pushed, *also})
        # Modules of the cell are looked for first: that is quicker than pickling.
        reader = ModuleReader(self.source, self.notebook_dir)
        values = {name: self.namespace[name] for name in order}
        captured = capture(values, self.main_globals, self.options.capture_limit_bytes)
        modules = reader.read(captured.modules, captured.functions)
        texts = tuple(texts_of(self.source.tree, captured.functions, values))
        data, names = named_files(texts, work_folder()), possible_names(texts)
        return captured, dataclasses.replace(modules, data=data, file_names=names)

    def _check_bring(self, known: tuple[str, ...]) -> None:
        there = {*self.names.bound, *known, *(set(self.names.free) & set(self.namespace))}
        for name in self.options.bring:
            if name not in there and not self.names.opaque:
                raise CellError(
                    f"--bring {name}: {self.source.filename} never assigns {name!r}"
                    f"{did_you_mean(name, there)}",
                    name=name,
                )

    def _pushed(self) -> tuple[str, ...]:
        for name in self.options.push:
            if name not in self.namespace:
                hint = did_you_mean(name, self.namespace)
                raise CellError(f"--push {name}: the notebook has no such name{hint}", name=name)
        return self.options.push

    def program(
        self,
        captured: Captured,
        modules: CellModules,
        space: CellSpace | None = None,
        space_name: str | None = None,
    ) -> tuple[Program, tuple[tuple[str, bytes | memoryview], ...], tuple[str, ...]]:
        """The program, the blobs that it names, and what users should know of both."""
        source = self.source
        carried = read_settings()
        own_calls = ("report", "checkpoint", "resume", "prepare_step")
        program = Program(
            source=source.text,
            filename=source.filename,
            sources=captured.sources,
            placeholders=space.placeholders if space else (),
            captures=captured.names,
            payload=captured.digest,
            buffers=tuple(digest for digest, _ in captured.buffers),
            modules=modules.files,
            settings=carried.settings,
            data=modules.data,
            file_names=modules.file_names,
            imports=modules.imports,
            ends_in_expression=source.ends_in_expression,
            callbacks=self.options.callbacks,
            own_calls=tuple(name for name in own_calls if self.calls(name, captured, modules)),
            space_name=space_name,
            space_labels=space.labels if space else {},
        )
        blobs = carried.blobs
        if captured.digest is not None:
            blobs[captured.digest] = captured.payload
        blobs.update(captured.buffers)
        blobs.update(modules.contents)
        return (
            program,
            tuple(blobs.items()),
            (
                *carried.notes,
                *modules.notes,
                *self._patches(captured, modules),
            ),
        )

    def _patches(self, captured: Captured, modules: CellModules) -> Iterator[str]:
        trees = (self.source.tree, *modules.trees)
        mentioned = mentioned_names(trees, captured.functions)
        values = [self.namespace[name] for name in self.names.free if name in self.namespace]
        return patches_note(self.source.tree, mentioned, values, captured.modules)

    def calls(self, name: str, captured: Captured, modules: CellModules) -> bool:
        """Whether a name occurs in the cell, in functions that it captures or in its modules."""
        trees = (self.source.tree, *modules.trees)
        if any(_mentions(tree, name) for tree in trees):
            return True
        return any(_code_mentions(function.__code__, name) for function in captured.functions)


def _mentions(tree: ast.AST, name: str) -> bool:
    return any(
        (isinstance(node, ast.Name) and node.id == name)
        or (isinstance(node, ast.Attribute) and node.attr == name)
        for node in ast.walk(tree)
    )


def _code_mentions(code: types.CodeType, name: str) -> bool:
    inner = (part for part in code.co_consts if isinstance(part, types.CodeType))
    return name in code.co_names or any(_code_mentions(part, name) for part in inner)
