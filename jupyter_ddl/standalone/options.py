"""Hyper-parameters as options of a program."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from jupyter_ddl.cell.source import CellSource
from jupyter_ddl.cell.space import read_space
from jupyter_ddl.errors import CellError, SpaceError
from jupyter_ddl.protocol.program import Placeholder, Program
from jupyter_ddl.protocol.space import Choice, Distribution, ParamValue, RandInt, Space, Uniform
from jupyter_ddl.ranks import incell

__all__ = ["Option", "declared_space", "options_of"]


class Option(NamedTuple):
    """A hyper-parameter on a program's line.

    Attributes
    ----------
    field : str
        Of what argparse returns.
    default : bool, int, float, str or None
        What the exported trial had, or the distribution's own.
    """

    name: str
    flag: str
    field: str
    found: Distribution
    default: ParamValue

    @property
    def texts(self) -> dict[str, ParamValue]:
        """Of a choice, its values as they are typed."""
        found = self.found
        return {str(value): value for value in found.values} if isinstance(found, Choice) else {}

    @property
    def declaration(self) -> str:
        """What follows ``add_argument(``."""
        found = self.found
        parts = [repr(self.flag), f"dest={self.field!r}"]
        if isinstance(found, Choice):
            typed = self.texts
            kinds = {type(value) for value in found.values}
            if kinds in ({int}, {float}):
                parts.append(f"type={kinds.pop().__name__}, choices={list(found.values)!r}")
            elif kinds == {str}:
                parts.append(f"choices={list(found.values)!r}")
            else:
                # argparse tells of what is no choice; a lookup that fails would be a traceback.
                parts.append(f"type=lambda text: {typed!r}.get(text, text)")
                parts.append(f"choices={list(typed.values())!r}")
            shown = ""
        else:
            parts.append("type=int" if isinstance(found, RandInt) else "type=float")
            log = ", log" if found.log else ""
            shown = f"{found.low:g} to {found.high:g}{log}; "
        parts += [f"default={self.default!r}", f"help={shown + 'default: %(default)s'!r}"]
        return ", ".join(parts)


def options_of(
    space: Space, params: Mapping[str, ParamValue], taken: Iterable[str]
) -> dict[str, Option]:
    """An option for every hyper-parameter, by its name.

    Parameters
    ----------
    params : mapping
        The trial's; parameters of branches that it did not take have their own defaults.
    taken : iterable of str
        Fields that the program itself has.
    """
    fields = set(taken)
    options = {}
    for name, found in space.items():
        plain = re.sub(r"\W+", "_", name).strip("_")
        while plain in fields:
            plain += "_value"
        fields.add(plain)
        default = params[name] if name in params else _default(found)
        options[name] = Option(name, "--" + plain.replace("_", "-"), plain, found, default)
    return options


def _default(found: Distribution) -> ParamValue:
    """What the call in the cell returns in plain execution."""
    if isinstance(found, Choice):
        return found.values[0] if found.default is None else found.default
    if isinstance(found, RandInt):
        return incell.randint(
            found.low, found.high, default=found.default, log=found.log, step=found.step
        )
    if found.log:
        return incell.loguniform(found.low, found.high, default=found.default)
    assert isinstance(found, Uniform)
    return incell.uniform(found.low, found.high, default=found.default, step=found.step)


def declared_space(program: Program) -> tuple[Space, tuple[Placeholder, ...]]:
    """Hyper-parameters that a cell declares although its run has not searched them.

    Nothing where one can't be read without the notebook: the program computes its default then.
    """
    tree = ast.parse(program.source)
    source = CellSource(program.source, tree, program.filename)
    try:
        found = read_space(source, dict.fromkeys(_captured(program)))
    except (CellError, SpaceError):
        return {}, ()
    return found.space, found.placeholders


def _captured(program: Program) -> Iterator[str]:
    return (each.name for each in program.captures)
