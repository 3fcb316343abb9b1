"""Data files beside the notebook that a cell names by a plain string: `pd.read_csv("x.csv")`.

Ranks that see the notebook's folder open them there.  To others they travel as modules do: by
content, once per worker.
"""

from __future__ import annotations

import ast
import re
import types
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any

import msgspec

from jupyter_ddl.errors import CaptureError, CellError
from jupyter_ddl.formats import format_bytes
from jupyter_ddl.protocol.program import ModuleFile
from jupyter_ddl.store.blobs import digest_of

__all__ = ["DATA_LIMIT_BYTES", "named_files", "possible_names", "read_files", "texts_of"]

DATA_LIMIT_BYTES = 256 << 20
"""Of all files that travel with a cell; larger data belongs where the workers can read it."""
_MAX_NAME = 255
_MAX_NAMES = 32
_NAME = re.compile(rf"(?!/)[\w. /-]{{1,{_MAX_NAME}}}")


def texts_of(
    tree: ast.AST,
    functions: Iterable[types.FunctionType],
    values: Mapping[str, Any],
) -> Iterator[str]:
    """Strings that may be names of files: in code, and as values of captured names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
    for function in functions:
        yield from _constants(function.__code__)
    for value in values.values():
        if isinstance(value, str | PurePath):
            yield str(value)


def _constants(code: types.CodeType) -> Iterator[str]:
    for constant in code.co_consts:
        if isinstance(constant, str):
            yield constant
        elif isinstance(constant, types.CodeType):
            yield from _constants(constant)


def possible_names(texts: Iterable[str]) -> tuple[str, ...]:
    """Those that look like relative names of files, and of folders that these may be in."""
    known = dict.fromkeys(text for text in texts if _NAME.fullmatch(text))
    files = [text for text in known if PurePath(text).suffix][:_MAX_NAMES]
    folders = [text for text in known if not PurePath(text).suffix][:_MAX_NAMES]
    return (*files, *folders) if files else ()


def named_files(texts: Iterable[str], folder: Path) -> tuple[ModuleFile, ...]:
    """Files below the folder that are named, by path, without having been read."""
    found = {}
    for text in texts:
        if not text or len(text) > _MAX_NAME or text in found or "\0" in text or "\n" in text:
            continue
        path = PurePath(text)
        if path.is_absolute() or ".." in path.parts:
            continue
        try:
            if (folder / path).is_file():
                found[path.as_posix()] = (folder / path).stat().st_size
        except OSError:
            continue  # a text that can't be a name, or a folder that can't be looked into
    return tuple(ModuleFile(path, "", size) for path, size in sorted(found.items()))


def read_files(
    files: Iterable[ModuleFile], folder: Path, limit_bytes: int
) -> list[tuple[ModuleFile, bytes]]:
    """The files with their content.

    Raises
    ------
    CaptureError
        Together they are larger than the limit; nothing was read.
    CellError
        One has gone since the cell was compiled, or can't be read.
    """
    files = tuple(files)
    total = sum(each.size_bytes for each in files)
    if total > limit_bytes:
        largest = max(files, key=lambda each: each.size_bytes)
        among = "" if len(files) == 1 else f" of {len(files)} files, {format_bytes(total)}"
        raise CaptureError(
            f"{largest.path!r}, which the cell names, is {format_bytes(largest.size_bytes)}"
            f"{among}; "
            f"these workers do not see the notebook's files: at most "
            f"{format_bytes(limit_bytes)} travel with a cell; put it where the workers can read it "
            f"(a volume, an object store), or raise --capture-limit",
            path=largest.path,
            size_bytes=largest.size_bytes,
        )
    return [_read(each, folder) for each in files]


def _read(file: ModuleFile, folder: Path) -> tuple[ModuleFile, bytes]:
    try:
        data = (folder / file.path).read_bytes()
    except OSError as error:
        raise CellError(
            f"{file.path!r} in {folder}, which the cell names, can't be read ({error.strerror}); "
            f"nothing was sent",
            path=file.path,
        ) from None
    digest, size_bytes = digest_of(data), len(data)
    return msgspec.structs.replace(file, digest=digest, size_bytes=size_bytes), data
