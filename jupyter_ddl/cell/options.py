"""The lines of ``%%distribute VERB …``: what may follow each verb, no IPython needed."""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from jupyter_ddl.cell.common_options import COMMON, OF_TRIALS, CommonOptions, EnvCheck
from jupyter_ddl.cell.ddp_options import ADMISSION_TIMEOUT, DDP, DdpOptions
from jupyter_ddl.cell.fit_options import FIT, FitOptions
from jupyter_ddl.cell.run_options import RUN, RunOptions
from jupyter_ddl.errors import OptionError
from jupyter_ddl.grammar import Argument, Command, Grammar, argument, count, identifier, one_of
from jupyter_ddl.plugins import PRUNERS, SAMPLERS
from jupyter_ddl.protocol.sampling import Mode
from jupyter_ddl.protocol.space import ParamValue

__all__ = [
    "DISTRIBUTE",
    "VERBS",
    "CommonOptions",
    "DdpOptions",
    "EnvCheck",
    "FitOptions",
    "MapOptions",
    "Options",
    "RunOptions",
    "SearchOptions",
    "parse_line",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions(CommonOptions):
    """Options of ``%%distribute search``; ``metric`` None: the only one that the cell reports."""

    metric: str | None = None
    mode: Mode = "max"
    trials: int | None = None
    sampler: str | None = None
    pruner: str = "none"
    ranks_per_trial: int = 1
    gpus_per_trial: int = 0
    admission_timeout_s: float | None = None
    space: str | None = None
    grid: tuple[tuple[str, tuple[ParamValue, ...]], ...] = ()

    def __post_init__(self) -> None:
        """Refuse what contradicts itself, also from Python callers.

        Raises
        ------
        OptionError
            A pruner that there is not, GPUs that can't be divided among the ranks of a trial.
        """
        PRUNERS.check(self.pruner)
        if self.gpus_per_trial % self.ranks_per_trial:
            raise OptionError(
                f"%%distribute search: --gpus-per-trial {self.gpus_per_trial} can't be divided "
                f"among --ranks-per-trial {self.ranks_per_trial}; expected a multiple of it"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class MapOptions(CommonOptions):
    """Options of ``%%distribute map``: the cell once per ``element`` of ``over``."""

    over: str
    element: str = "item"


Options: TypeAlias = SearchOptions | MapOptions | DdpOptions


def _grid(text: str) -> tuple[str, tuple[ParamValue, ...]]:
    """``lr=0.1,0.01`` as a name and its values; bare words are strings."""
    left, equals, right = text.partition("=")
    if not equals or not right.strip():
        raise argparse.ArgumentTypeError(f"{text!r}; expected NAME=VALUE,VALUE,… e.g. lr=0.1,0.01")
    return identifier(left), tuple(_grid_value(part) for part in _split(right.strip()))


def _split(text: str) -> list[str]:
    """Parts between the commas of ``text``, commas in quotes kept."""
    if len(text) > 1 and text[0] in "[(" and text[-1] in "])":
        text = text[1:-1]
    parts = re.findall(r"""(?:"[^"]*"|'[^']*'|[^,])+""", text)
    return [part.strip() for part in parts if part.strip()]


def _grid_value(text: str) -> ParamValue:
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        if re.fullmatch(r"[\w.+/:@-]+", text) and text not in ("nan", "inf", "-inf"):
            return text
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither a number, a quoted string nor a word"
        ) from None
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise argparse.ArgumentTypeError(
        f"{text!r} is a {type(value).__name__}; grid values are numbers, strings, True, False "
        f"or None, so declare the name with choice(…) in the cell"
    )


_SEARCH: tuple[Argument, ...] = (
    argument("--metric", metavar="NAME", help="what report() calls it", offers="metrics"),
    argument("--mode", type=one_of("max", "min"), default="max"),
    argument("--trials", type=count(1), metavar="N", help="default 20; a grid: all points"),
    argument(
        "--sampler",
        metavar="NAME",
        help=f"{', '.join(SAMPLERS.built_in)}, module:Class or a variable",
        offers=(SAMPLERS.names, "samplers"),
    ),
    argument(
        "--pruner",
        type=PRUNERS.argument,
        default="none",
        metavar="|".join(PRUNERS.built_in),
        offers=PRUNERS.names,
    ),
    argument("--ranks-per-trial", type=count(1), default=1, metavar="N"),
    argument("--gpus-per-trial", type=count(0), default=0, metavar="N"),
    ADMISSION_TIMEOUT,
    argument(
        "--space", type=identifier, metavar="NAME", help="a dict of distributions", offers="dicts"
    ),
    argument(
        "--grid",
        type=_grid,
        action="append",
        default=[],
        metavar="NAME=V,V",
        help="values of one name, e.g. lr=0.1,0.01; may be repeated",
    ),
)

_MAP = argument(
    "--over",
    nargs="+",
    metavar="WORD",
    help="NAME of a sequence, or ELEMENT in NAME; the element is called item by default",
    offers="sequences",
)


def _search(*, grid: Sequence[tuple[str, tuple[ParamValue, ...]]], **given: Any) -> SearchOptions:
    return SearchOptions(grid=tuple(grid), **given)


def _ddp(*, n_ranks: int | None, **given: Any) -> DdpOptions:
    if n_ranks is None:
        raise OptionError("%%distribute ddp needs -n N, the number of ranks; e.g. ddp -n 2")
    return DdpOptions(n_ranks=n_ranks, **given)


def _map(*, over: Sequence[str] | None, **given: Any) -> MapOptions:
    words = " ".join(over or ()).split()
    try:
        if len(words) == 1:
            return MapOptions(over=identifier(words[0]), **given)
        if len(words) == 3 and words[1] == "in":
            element, sequence = identifier(words[0]), identifier(words[2])
            return MapOptions(over=sequence, element=element, **given)
    except argparse.ArgumentTypeError as error:
        raise OptionError(f"%%distribute map: --over: {error}") from None
    seen = " ".join(words) or "nothing"
    raise OptionError(
        f"%%distribute map: --over is {seen!r}; expected the name of a sequence (--over items) "
        f"or an element of it (--over x in items)"
    )


DISTRIBUTE = Grammar(
    "%%distribute",
    "Run this cell elsewhere: what runs it is the verb.",
    [
        Command(
            "search",
            "Search hyper-parameters: the cell is one trial.",
            (*_SEARCH, *COMMON, *OF_TRIALS),
            _search,
        ),
        Command(
            "map",
            "Run the cell once per element of a sequence; results come in order.",
            (_MAP, *COMMON, *OF_TRIALS),
            _map,
        ),
        Command(
            "ddp",
            "Train data-parallel: the cell runs on N ranks that share a process group.",
            (*DDP, *COMMON),
            _ddp,
        ),
        Command(
            "fit",
            "Run the cell here and its scikit-learn fits on the cluster, each prefix once.",
            FIT,
            FitOptions,
        ),
        Command(
            "run",
            "Run the cell on the ranks of a group that keeps its variables between cells.",
            RUN,
            RunOptions,
        ),
    ],
    noun="verb",
)
VERBS = tuple(DISTRIBUTE.commands)


def parse_line(line: str) -> Options | FitOptions | RunOptions:
    """Options of a magic's line, without the ``%%distribute``.

    Parameters
    ----------
    line : str
        For example ``search --metric val_acc --trials 40``.

    Raises
    ------
    OptionError
        For an unknown verb or option or a wrong value; one line, with the nearest name.
    HelpRequested
        For ``--help``; carries the text.
    """
    verb, values = DISTRIBUTE.parse_line(line)
    options: Options | FitOptions | RunOptions = verb.call(**values)
    return options
