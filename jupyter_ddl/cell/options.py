"""The grammar of ``%%distribute VERB …``: one table of options per verb, no IPython needed.

A wrong line is refused in one sentence with the nearest name; ``--help`` runs nothing.
"""

from __future__ import annotations

import argparse
import functools
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

from jupyter_ddl.cell import values
from jupyter_ddl.cell.common_options import ENV_CHECKS, CommonOptions, EnvCheck, add_common
from jupyter_ddl.cell.ddp_options import BACKENDS, DdpOptions, add_admission, add_ddp
from jupyter_ddl.cell.fit_options import FitOptions, add_fit
from jupyter_ddl.cell.run_options import RunOptions, add_run
from jupyter_ddl.errors import OptionError
from jupyter_ddl.nearest import did_you_mean
from jupyter_ddl.plugins import PRUNERS, SAMPLERS, STRATEGIES
from jupyter_ddl.protocol.run import Mode
from jupyter_ddl.protocol.space import ParamValue

__all__ = [
    "VERBS",
    "CommonOptions",
    "DdpOptions",
    "EnvCheck",
    "FitOptions",
    "HelpRequested",
    "MapOptions",
    "Options",
    "RunOptions",
    "SearchOptions",
    "choices",
    "help_text",
    "option_flags",
    "parse_line",
]

VERBS = ("search", "map", "ddp", "fit", "run")
MODES = ("max", "min")
_VERBS_TEXT = f"{', '.join(VERBS[:-1])} or {VERBS[-1]}"


class HelpRequested(Exception):  # not an error: nothing went wrong
    """``--help`` was given.  ``text`` is to be shown, and nothing is to run."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


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
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise OptionError(f"%%distribute: {str(error).lower()} in {line.strip()!r}") from None
    if not words:
        raise OptionError(f"%%distribute needs a verb: {_VERBS_TEXT}; --help explains them")
    verb, rest = words[0], words[1:]
    if verb in ("-h", "--help", "help"):
        raise HelpRequested("\n\n".join(help_text(each) for each in VERBS))
    if verb not in VERBS:
        hint = did_you_mean(verb, VERBS)
        raise OptionError(f"%%distribute: unknown verb {verb!r}; expected {_VERBS_TEXT}{hint}")
    if "--help" in rest or "-h" in rest:  # whatever else is wrong with the line
        raise HelpRequested(help_text(verb))
    found, unknown = _parser(verb).parse_known_args(rest)
    if unknown:
        raise _unknown_option(verb, unknown[0])
    fields = vars(found)
    del fields["help"]
    make: dict[str, Callable[[dict[str, Any]], Options | FitOptions | RunOptions]] = {
        "search": _search,
        "map": _map,
        "ddp": _ddp,
        "fit": lambda given: FitOptions(**given),
        "run": lambda given: RunOptions(**given),
    }
    return make[verb](fields)


def option_flags(verb: str) -> tuple[str, ...]:
    """All option flags of a verb, long ones first, for completion; none for an unknown verb."""
    if verb not in VERBS:
        return ()
    flags = [flag for action in _parser(verb)._actions for flag in action.option_strings]
    return tuple(sorted(flags, key=lambda flag: (not flag.startswith("--"), flag)))


def choices(verb: str, flag: str) -> tuple[str, ...]:
    """Values to complete after ``flag``; none where any value may follow."""
    if flag not in option_flags(verb):
        return ()
    table: dict[str, tuple[str, ...]] = {
        "--mode": MODES,
        "--env-check": ENV_CHECKS,
        "--backend": BACKENDS,
    }
    kinds = {"--sampler": SAMPLERS, "--pruner": PRUNERS, "--strategy": STRATEGIES}
    if flag in kinds:
        return kinds[flag].names()
    return table.get(flag, ())


def help_text(verb: str) -> str:
    """What ``--help`` shows for a verb."""
    return _parser(verb).format_help()


class _Parser(argparse.ArgumentParser):
    """Raises instead of printing to stderr and ending the process."""

    def error(self, message: str) -> NoReturn:
        raise OptionError(f"{self.prog}: {message.removeprefix('argument ')}")


def _unknown_option(verb: str, word: str) -> OptionError:
    if not word.startswith("-"):
        return OptionError(
            f"%%distribute {verb}: unexpected {word!r}; quote values that contain spaces"
        )
    flag = word.partition("=")[0]
    hint = did_you_mean(flag, option_flags(verb)) or "; --help lists the options"
    return OptionError(f"%%distribute {verb}: unknown option {flag!r}{hint}")


@functools.cache
def _parser(verb: str) -> _Parser:
    purpose = {
        "search": "Search hyper-parameters: the cell is one trial.",
        "map": "Run the cell once per element of a sequence; results come in order.",
        "ddp": "Train data-parallel: the cell runs on N ranks that share a process group.",
        "fit": "Run the cell here and its scikit-learn fits on the cluster, each prefix once.",
        "run": "Run the cell on the ranks of a group that keeps its variables between cells.",
    }[verb]
    parser = _Parser(
        prog=f"%%distribute {verb}",
        description=purpose,
        add_help=False,
        allow_abbrev=False,
        formatter_class=functools.partial(argparse.HelpFormatter, width=100, max_help_position=32),
    )
    add_own = {
        "search": _add_search,
        "map": _add_map,
        "ddp": add_ddp,
        "fit": add_fit,
        "run": add_run,
    }
    add_own[verb](parser)
    if verb not in ("fit", "run"):
        add_common(parser, with_trials=verb != "ddp")
    return parser


def _add_search(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--metric", metavar="NAME", help="what report() calls the objective")
    add("--mode", type=values.one_of(*MODES), default="max", metavar="max|min")
    add("--trials", type=values.count(1), metavar="N", help="default 20; a grid: all points")
    samplers, pruners = ", ".join(SAMPLERS.built_in), "|".join(PRUNERS.built_in)
    add("--sampler", metavar="NAME", help=f"{samplers}, module:Class or a variable")
    add("--pruner", type=PRUNERS.argument, default="none", metavar=pruners)
    add("--ranks-per-trial", type=values.count(1), default=1, metavar="N")
    add("--gpus-per-trial", type=values.count(0), default=0, metavar="N")
    add_admission(parser)
    add("--space", type=values.identifier, metavar="NAME", help="a dict of distributions")
    add(
        "--grid",
        type=values.grid,
        action="append",
        default=[],
        metavar="NAME=V,V",
        help="values of one name, e.g. lr=0.1,0.01; may be repeated",
    )


def _add_map(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--over",
        nargs="+",
        metavar="WORD",
        help="NAME of a sequence, or ELEMENT in NAME; the element is called item by default",
    )


def _search(fields: dict[str, Any]) -> SearchOptions:
    fields["grid"] = tuple(fields["grid"])
    return SearchOptions(**fields)


def _ddp(fields: dict[str, Any]) -> DdpOptions:
    if fields["n_ranks"] is None:
        raise OptionError("%%distribute ddp needs -n N, the number of ranks; e.g. ddp -n 2")
    return DdpOptions(**fields)


def _map(fields: dict[str, Any]) -> MapOptions:
    words = " ".join(fields.pop("over") or ()).split()
    try:
        if len(words) == 1:
            return MapOptions(over=values.identifier(words[0]), **fields)
        if len(words) == 3 and words[1] == "in":
            element, over = values.identifier(words[0]), values.identifier(words[2])
            return MapOptions(over=over, element=element, **fields)
    except argparse.ArgumentTypeError as error:
        raise OptionError(f"%%distribute map: --over: {error}") from None
    seen = " ".join(words) or "nothing"
    raise OptionError(
        f"%%distribute map: --over is {seen!r}; expected the name of a sequence (--over items) "
        f"or an element of it (--over x in items)"
    )
