"""Values of a notebook as expressions: short ones as they are written, others from plain files.

Nothing is pickled.  Numbers, texts and containers of them are Python or JSON, arrays and tensors
are ``.npy`` files, classes and functions are named.  Anything else is refused, by its type.
"""

from __future__ import annotations

import ast
import functools
import json
import math
import pathlib
import sys
import types
from collections.abc import Callable
from typing import Any

from jupyter_ddl.cell.decorated import is_importable

__all__ = ["FOLDER", "NotPlainError", "ValueWriter"]

FOLDER = "_DATA"
"""What programs call the folder of their files."""
_SHORT = 200
_MAX_PARTS = 200
_MAX_INTEGER_BITS = 10_000


class NotPlainError(Exception):
    """There is no plain form of a value; the text is its type."""


class ValueWriter:
    """Writes values of one program.

    Parameters
    ----------
    folder : Path
        Of the files; made when there is one.
    named : callable
        The name of a class or function that the notebook itself defines, or None.

    Attributes
    ----------
    imports : set of str
        Statements that the expressions need.
    """

    def __init__(
        self, folder: pathlib.Path, named: Callable[[Any], str | None] = lambda _: None
    ) -> None:
        self._folder = folder
        self._named = named
        self._files: set[str] = set()
        self._n_parts = 0
        self.imports: set[str] = set()

    def expression(self, name: str, value: Any) -> str:
        """A value as an expression.

        Parameters
        ----------
        name : str
            What its files are named for.

        Raises
        ------
        NotPlainError
            Something in it is neither plain, an array, a tensor, a class nor a function.
        """
        self._n_parts = 0
        return self._text(name, value, ())

    def _text(self, name: str, value: Any, parents: tuple[int, ...]) -> str:
        self._n_parts += 1
        if self._n_parts > _MAX_PARTS or id(value) in parents:
            raise NotPlainError("a container of many objects")
        text = _written(value)
        if text is not None and len(text) <= _SHORT:
            return text
        if _is_json(value):
            self.imports.add("import json")
            data = json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
            return f"json.loads(({FOLDER} / {self._file(name, '.json', data)!r}).read_bytes())"
        for form in (self._array, self._tensor, self._table, self._callable):
            found = form(name, value)
            if found is not None:
                return found
        return self._container(name, value, (*parents, id(value)))

    def _container(self, name: str, value: Any, parents: tuple[int, ...]) -> str:
        def part(key: Any, item: Any) -> str:
            return self._text(f"{name}_{key}", item, parents)

        kind = type(value)
        if kind in (list, tuple):
            parts = [part(number, item) for number, item in enumerate(value)]
            if kind is list:
                return f"[{', '.join(parts)}]"
            return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
        if kind is dict:
            pairs = (
                f"{part('key', key)}: {part(key if isinstance(key, str) else n, item)}"
                for n, (key, item) in enumerate(value.items())
            )
            return f"{{{', '.join(pairs)}}}"
        if isinstance(value, pathlib.PurePath) and kind.__module__.startswith("pathlib"):
            self.imports.add("import pathlib")
            return f"pathlib.Path({str(value)!r})"
        if kind is functools.partial and not value.keywords:
            self.imports.add("import functools")
            parts = [part(number, item) for number, item in enumerate((value.func, *value.args))]
            return f"functools.partial({', '.join(parts)})"
        raise NotPlainError(f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins."))

    def _array(self, name: str, value: Any) -> str | None:
        numpy: Any = sys.modules.get("numpy")
        if numpy is None or not (type(value) is numpy.ndarray or isinstance(value, numpy.generic)):
            return None
        if value.dtype.hasobject:
            raise NotPlainError(f"{type(value).__name__} of objects")
        self.imports.add("import numpy")
        loaded = f"numpy.load({FOLDER} / {self._npy(name, numpy.asarray(value))!r})"
        return loaded if isinstance(value, numpy.ndarray) else f"{loaded}[()]"

    def _tensor(self, name: str, value: Any) -> str | None:
        torch: Any = sys.modules.get("torch")
        if torch is None or type(value) not in (torch.Tensor, torch.nn.Parameter):
            return None
        if value.layout is not torch.strided or value.is_quantized:
            raise NotPlainError("a sparse or quantized tensor")
        plain = value.detach().cpu().contiguous()
        dtype = ""
        if str(plain.dtype).startswith(("torch.bfloat", "torch.float8")):  # unknown to numpy
            dtype = f".view({plain.dtype})"
            plain = plain.view(torch.int16 if plain.dtype.itemsize == 2 else torch.uint8)
        self.imports.update(("import numpy", "import torch"))
        file = self._npy(name, plain.resolve_conj().resolve_neg().numpy())
        text = f"torch.from_numpy(numpy.load({FOLDER} / {file!r})){dtype}"
        if type(value) is torch.nn.Parameter:
            return f"torch.nn.Parameter({text}, requires_grad={value.requires_grad})"
        return f"{text}.requires_grad_()" if value.requires_grad else text

    def _table(self, name: str, value: Any) -> str | None:
        """A DataFrame or Series whose columns are arrays or texts, in the order 0, 1, 2 …"""
        pandas: Any = sys.modules.get("pandas")
        if pandas is None or type(value) not in (pandas.DataFrame, pandas.Series):
            return None
        is_table = type(value) is pandas.DataFrame
        table = value if is_table else value.to_frame(0)
        plain = {key: _column(column) for key, column in table.items()}
        made: Any = pandas.DataFrame(plain)
        if not (
            len(plain) == table.shape[1]
            and made.index.equals(table.index)
            and list(made.dtypes) == list(table.dtypes)
            and made.equals(table)
        ):
            what = type(value).__name__
            raise NotPlainError(f"a {what} with an index or columns that no plain file has")
        self.imports.add("import pandas")
        if is_table:
            return f"pandas.DataFrame({self._text(name, plain, ())})"
        return f"pandas.Series({self._text(name, plain[0], ())}, name={value.name!r})"

    def _callable(self, name: str, value: Any) -> str | None:
        if not isinstance(value, type | types.FunctionType | types.BuiltinFunctionType):
            found = self._named(value)
            if found is None and not (callable(value) and is_importable(value)):
                return None
        else:
            found = self._named(value)
        if found is not None:
            return found
        if not is_importable(value):
            raise NotPlainError(f"{value.__qualname__}, whose source the record does not have")
        self.imports.add(f"import {value.__module__}")
        return f"{value.__module__}.{value.__qualname__}".removeprefix("builtins.")

    def _npy(self, name: str, array: Any) -> str:
        numpy: Any = sys.modules["numpy"]
        file = self._free(name, ".npy")
        with (self._folder / file).open("wb") as opened:
            numpy.save(opened, array, allow_pickle=False)
        return file

    def _file(self, name: str, suffix: str, data: bytes) -> str:
        file = self._free(name, suffix)
        (self._folder / file).write_bytes(data)
        return file

    def _free(self, name: str, suffix: str) -> str:
        plain = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in name)
        stem = plain[:60].strip("_") or "value"
        file, number = f"{stem}{suffix}", 1
        while file.lower() in self._files:
            number += 1
            file = f"{stem}_{number}{suffix}"
        self._files.add(file.lower())
        self._folder.mkdir(parents=True, exist_ok=True)
        return file


def _written(value: Any) -> str | None:
    """What Python reads back as the same value, without a name in it; None: nothing does."""
    kind = type(value)
    if kind is range:
        return repr(value)
    if kind is set and not value:
        return "set()"
    if (kind is int and value.bit_length() > _MAX_INTEGER_BITS) or not _is_literal(value, 0):
        return None
    text = repr(value)
    try:
        return text if ast.literal_eval(text) == value else None
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def _is_literal(value: Any, depth: int) -> bool:
    kind = type(value)
    if value is None or kind in (bool, int, str, bytes):
        return kind not in (str, bytes) or len(value) <= _SHORT
    if kind is float:
        return math.isfinite(value)
    if depth > 8 or kind not in (list, tuple, set, dict) or not 0 < len(value) <= _SHORT:
        return kind in (list, tuple, dict) and not value
    parts = (*value, *value.values()) if kind is dict else tuple(value)
    return all(_is_literal(part, depth + 1) for part in parts)


def _is_json(value: Any, depth: int = 0) -> bool:
    """Whether JSON gives back just this: no tuples, and texts as keys."""
    kind = type(value)
    if value is None or kind in (bool, str, float):
        return True
    if kind is int:
        return bool(value.bit_length() <= _MAX_INTEGER_BITS)
    if depth > 50:
        return False
    if kind is list:
        return all(_is_json(part, depth + 1) for part in value)
    if kind is dict:
        return all(type(key) is str and _is_json(part, depth + 1) for key, part in value.items())
    return False


def _column(column: Any) -> Any:
    """A column as an array, or as a list of texts."""
    array = column.to_numpy()
    return column.tolist() if array.dtype.hasobject else array
