"""``{expression}`` and ``$name`` in a magic's first line, with the notebook's values.

The body of a cell is never touched: there braces are Python's.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

from jupyter_ddl.errors import OptionError

__all__ = ["expand_line"]

_FIELD = re.compile(r"\{\{|\}\}|\{([^{}]+)\}|\$([A-Za-z_][A-Za-z0-9_]*)")
_MARK = "\x00"
"""Stands around a value's number while the line is split, so that no value is split."""


def expand_line(line: str, namespace: Mapping[str, Any]) -> str:
    """The line with values in the places of expressions; each value stays one word.

    ``{{`` and ``}}`` stand for braces, and ``$name`` of no variable stays as it is.

    Raises
    ------
    OptionError
        An expression has no value; quotes it and says why.
    """
    found: list[str] = []

    def mark(match: re.Match[str]) -> str:
        text = _value(match, namespace)
        if text is None:
            return match.group()
        found.append(text)
        return f"{_MARK}{len(found) - 1}{_MARK}"

    marked = _FIELD.sub(mark, line.replace(_MARK, ""))
    if not found:
        return line
    try:
        words = shlex.split(marked)
    except ValueError:
        return line  # the parser of the line reports the open quote
    return shlex.join(_filled(word, found) for word in words)


def _filled(word: str, values: list[str]) -> str:
    return re.sub(f"{_MARK}(\\d+){_MARK}", lambda match: values[int(match.group(1))], word)


def _value(match: re.Match[str], namespace: Mapping[str, Any]) -> str | None:
    if match.group() in ("{{", "}}"):
        return match.group()[0]
    expression, name = match.groups()
    if name is not None:
        return str(namespace[name]) if name in namespace else None
    try:
        # The user's own expression, in the user's own kernel, as in any other magic.
        return str(eval(expression, dict(namespace)))
    except Exception as error:  # noqa: BLE001 - whatever the expression raises is its own answer
        raise OptionError(
            f"{match.group()} on the magic's line: {type(error).__name__}: {error}"
        ) from None
