"""Joins the live view's modules into the one text that anywidget wants.

Each module becomes a function of its own that returns what it exports, so names of different
modules never meet.  Only the forms of import and export that the view uses are known; anything
else is an error, and a test joins the real modules.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

__all__ = [
    "LIVE_DIR",
    "BundleError",
    "join_modules",
    "live_css",
    "live_esm",
    "replay_esm",
    "replay_page_esm",
]

LIVE_DIR = Path(__file__).with_name("live")

_IMPORT = re.compile(r'^import \{([^}]*)\} from "\./([\w.-]+)";\n', re.MULTILINE)
_IMPORTED_CSS = re.compile(r'^@import "\./([\w/]+\.css)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:async )?function|class|const) (\w+)", re.MULTILINE)
_DEFAULT = re.compile(r"^export default ", re.MULTILINE)
_INDENT = re.compile(r"^[ \t]+", re.MULTILINE)
_COMMENT = re.compile(r"^(?://.*|/\*(?:[^*]|\*(?!/))*\*/)\n", re.MULTILINE)
# Behind code: no text ends in such a line, for it would end with a quote.
_REMARK = re.compile(r"(?<=[;,{}]) // [^\"`\n]*$", re.MULTILINE)
_BLANK = re.compile(r"\n{2,}")
_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"|`[^`]*`')
_SPACED = re.compile(rf"({_TEXT.pattern})|(?<=\S) *(=>|[!=<>]=+|[=,;:?(){{}}\[\]<>&|*]) *(?=\S)")
_ANY = re.compile(r"^(?:import|export)\b.*", re.MULTILINE)


class BundleError(ValueError):
    """The modules can't be joined; the message says which line of which one is in the way."""


def join_modules(folder: Path, entry: str) -> str:
    """One ES module that does what ``entry`` and all that it imports do.

    Parameters
    ----------
    folder : Path
        Where all modules lie.
    entry : str
        File name of the module with the default export.

    Raises
    ------
    BundleError
        A form of import or export that is not known, or modules that import each other in a circle.
    """
    parts: list[str] = []
    _add(folder, entry, parts, {}, ())
    return "".join(parts)


def _slim(source: str) -> str:
    """Without indentation and comments, a third of the whole; no text goes over lines."""
    return _BLANK.sub("\n", _REMARK.sub("", _COMMENT.sub("", _INDENT.sub("", source))))


def _tight(source: str) -> str:
    """Without spaces around punctuation.  Lines with what could hold other text are left alone."""

    def squeezed(line: str) -> str:
        # A template within another one, or a quote within one, is none of this line's two ends.
        is_plain = line.count("`") in (0, 2) and not re.search(r"`[^`]*\"[^`]*`", line)
        if not is_plain or any(mark in _TEXT.sub("", line) for mark in "`/'"):
            return line
        return _SPACED.sub(lambda found: found[1] or found[2], line)

    return "".join(map(_joined, map(squeezed, source.split("\n"))))


def _joined(line: str) -> str:
    """A line with its end, or without where the next one may follow it at once."""
    is_open = line.endswith((";", "{", ",")) and "//" not in line
    return line if is_open else f"{line}\n"


def _add(
    folder: Path, name: str, parts: list[str], known: dict[str, str], path: tuple[str, ...]
) -> str:
    """Append a module behind those that it imports; returns the name of its variable."""
    if name in path:
        raise BundleError(
            f"joining {name} failed: imports in a circle: {' → '.join(path)} → {name}"
        )
    if name in known:
        return known[name]
    source = _slim((folder / name).read_text(encoding="utf-8"))

    def imported(match: re.Match[str]) -> str:
        variable = _add(folder, match[2], parts, known, (*path, name))
        names = match[1].replace(" as ", ": ").strip().rstrip(",")
        return f"const {{ {names} }} = {variable};\n"

    body = _IMPORT.sub(imported, source)
    exported = [match[2] for match in _EXPORT.finditer(body)]
    body = _EXPORT.sub(r"\1 \2", body)
    is_entry = not path
    if is_entry:
        body, n_defaults = _DEFAULT.subn("const $default = ", body)
        if n_defaults != 1:
            raise BundleError(f"joining {name} failed: it has {n_defaults} default exports, not 1")
        exported.append("$default")
    left = _ANY.search(body)
    if left is not None:
        raise BundleError(f"joining {name} failed: {left[0]!r} is a form that the joiner lacks")
    variable = known[name] = "$" + re.sub(r"\W", "_", name.removesuffix(".js"))
    result = f"return {{ {', '.join(exported)} }};"
    whole = f"const {variable} = (() => {{\n{body}{result}\n}})();\n"
    parts.append(f"// {name}\n{_tight(whole)}")
    if is_entry:
        parts.append(f"export default {variable}.$default;\n")
    return variable


@cache
def live_esm() -> str:
    """The live view as one ES module."""
    return join_modules(LIVE_DIR, "widget.js")


@cache
def replay_esm() -> str:
    """The player of recordings as one ES module, for a widget."""
    return join_modules(LIVE_DIR, "replay_widget.js")


@cache
def replay_page_esm() -> str:
    """The player of recordings for a page of its own; its default export starts it."""
    return join_modules(LIVE_DIR, "replay_page.js")


@cache
def live_css() -> str:
    """Its styles, without an import."""
    text = (LIVE_DIR / "live.css").read_text(encoding="utf-8")
    return _IMPORTED_CSS.sub(lambda part: (LIVE_DIR / part[1]).read_text(encoding="utf-8"), text)
