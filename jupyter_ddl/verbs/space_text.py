"""A search space as ``--dry-run`` shows it: parameters, below the choices that lead to them."""

from __future__ import annotations

from collections.abc import Iterator

from jupyter_ddl.protocol.space import Choice, Distribution, OneOf, RandInt, Space, when_text

__all__ = ["distribution_text", "space_lines"]

_INDENT = "  "


def space_lines(space: Space) -> Iterator[str]:
    """One line for each parameter, and one above those of a branch."""
    yield from _level(space, (), _INDENT)


def _level(space: Space, path: tuple[OneOf, ...], indent: str) -> Iterator[str]:
    """The parameters that exist below a path of choices, and what their values lead to."""
    branches = _branches(space, path)
    for name, found in space.items():
        if found.when == ((path,) if path else ()):
            yield f"{indent}{name}: {distribution_text(found)}"
        elif not path and len(found.when) > 1:
            yield f"{indent}{name}: {distribution_text(found)}, if {when_text(found.when)}"
        else:
            continue
        for part in [part for part in branches if part.name == name]:
            branches.remove(part)
            yield f"{indent}{_INDENT}if {when_text(((part,),))}:"
            yield from _level(space, (*path, part), indent + 2 * _INDENT)
    for part in branches:
        yield f"{indent}if {when_text(((part,),))}:"
        yield from _level(space, (*path, part), indent + _INDENT)


def _branches(space: Space, path: tuple[OneOf, ...]) -> list[OneOf]:
    """What the paths of other parameters go on with behind this one, in their order."""
    paths = [found.when[0] for found in space.values() if len(found.when) == 1]
    deeper = [each for each in paths if len(each) > len(path) and each[: len(path)] == path]
    return list(dict.fromkeys(each[len(path)] for each in deeper))


def distribution_text(found: Distribution) -> str:
    """One line for a distribution, e.g. ``0.0001 … 0.1, log``."""
    if isinstance(found, Choice):
        shown = [str(value) if found.by_index else repr(value) for value in found.values[:12]]
        more = len(found.values) - len(shown)
        text = ", ".join(shown) + (f", … {more} more" if more else "")
        return f"one of {text}" + _default_text(found)
    text = f"{found.low} … {found.high}"
    if found.log:
        text += ", log"
    if found.step is not None and found.step != 1:
        text += f", step {found.step}"
    return (f"whole, {text}" if isinstance(found, RandInt) else text) + _default_text(found)


def _default_text(found: Distribution) -> str:
    return "" if found.default is None else f" (default {found.default})"
