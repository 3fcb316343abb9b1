"""``search``: hyper-parameters of a cell, proposed by a sampler and judged by a metric."""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Self

import msgspec

from jupyter_ddl.cell.draft import CellContext, RunDraft, draft_run
from jupyter_ddl.cell.filled import filled_cell
from jupyter_ddl.cell.metric import Reports, choose_metric, reports_in
from jupyter_ddl.cell.modules import is_installed
from jupyter_ddl.cell.names import read_names
from jupyter_ddl.cell.options import ADMISSION, COMMON, MANY_TRIALS, PROFILE, CellOptions
from jupyter_ddl.cell.program import CellParts
from jupyter_ddl.cell.source import read_source
from jupyter_ddl.cell.space import CellSpace, check_grid, is_finite, read_space
from jupyter_ddl.errors import CellError, OptionError
from jupyter_ddl.formats import format_count
from jupyter_ddl.grammar import Argument, Group, argument, count, identifier, one_of
from jupyter_ddl.plugins import PRUNERS, SAMPLERS
from jupyter_ddl.protocol.grid import n_grid_points
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.protocol.sampling import Mode, PrunerSpec, SamplerSpec
from jupyter_ddl.protocol.space import Distribution, ParamValue
from jupyter_ddl.protocol.verb import Capabilities, RankNeeds
from jupyter_ddl.ranks.frameworks.hooks import LIBRARIES
from jupyter_ddl.verbs.base import Line, Verb
from jupyter_ddl.verbs.space_text import space_lines

__all__ = ["DEFAULT_TRIALS", "Search", "read_grid"]

DEFAULT_TRIALS = 20


def read_grid(text: str) -> tuple[str, tuple[ParamValue, ...]]:
    """``lr=0.1,0.01`` as a name and its values; bare words are strings."""
    left, equals, right = text.partition("=")
    if not equals or not right.strip():
        raise argparse.ArgumentTypeError(f"{text!r}; expected NAME=VALUE,VALUE,… e.g. lr=0.1,0.01")
    return identifier(left), tuple(_grid_value(part) for part in _split(right.strip()))


class Search(Verb, frozen=True, tag="search"):
    """A hyper-parameter search: which trials, judged by which metric."""

    purpose: ClassVar[str] = "Search hyper-parameters: the cell is one trial."
    arguments: ClassVar[tuple[Argument | Group, ...]] = (
        argument(
            "--metric",
            metavar="NAME",
            help="the metric to judge trials by, as named in report()",
            offers="metrics",
        ),
        argument(
            "--mode",
            type=one_of("max", "min"),
            default="max",
            help="whether a larger or a smaller metric is better; default: max",
        ),
        argument(
            "--trials",
            type=count(1),
            metavar="N",
            help="number of trials; default: 20, or all points of a grid",
        ),
        argument(
            "--sampler",
            metavar="NAME",
            help=f"{', '.join(SAMPLERS.built_in)}, module:Class or a variable of the notebook",
            offers=(SAMPLERS.names, "samplers"),
        ),
        argument(
            "--pruner",
            type=PRUNERS.argument,
            default="none",
            metavar="|".join(PRUNERS.built_in),
            help="stops bad trials early; default: none",
            offers=PRUNERS.names,
        ),
        argument("--ranks-per-trial", type=count(1), default=1, metavar="N", help="default: 1"),
        argument("--gpus-per-trial", type=count(0), default=0, metavar="N", help="default: 0"),
        ADMISSION,
        argument(
            "--space",
            type=identifier,
            metavar="NAME",
            help="a dict of distributions: the search space",
            offers="dicts",
        ),
        argument(
            "--grid",
            type=read_grid,
            action="append",
            default=[],
            metavar="NAME=V,V",
            help="values of one hyper-parameter, e.g. lr=0.1,0.01; repeatable",
        ),
        *COMMON,
        PROFILE,
        *MANY_TRIALS,
    )
    can: ClassVar[Capabilities] = Capabilities(
        has_trials=True,
        has_objective=True,
        stops=("keep_best", "epoch", "next_report", "now"),
        brings="best",
    )
    needs_all: ClassVar[bool] = False

    metric: str = ""
    """Empty on a line: the only one that the cell reports."""
    mode: Mode = "max"
    n_trials: int = 0
    """0 on a line: 20, or all points of a grid."""
    space: dict[str, Distribution] = {}
    sampler: SamplerSpec = SamplerSpec()
    """Without a name on a line: the one that fits."""
    pruner: PrunerSpec = PrunerSpec()
    window: int | None = None
    """How far a sampler that learns may run ahead: trial n is asked when all up to n - window
    are told.  Set once by the controller and recorded: the trial list never depends on timing."""
    ranks_per_trial: int = 1
    gpus_per_trial: int = 0
    """Divided evenly among the trial's ranks."""
    space_name: str = ""
    """Of a dict in the notebook that has more of the space; empty: there is none."""
    grid: tuple[tuple[str, tuple[ParamValue, ...]], ...] = ()
    """Values that a line gives by name; a run has them in its space."""

    @classmethod
    def chosen(cls, values: Mapping[str, Any]) -> Line[Self]:
        given = dict(values)
        given["metric"] = given.get("metric") or ""
        given["n_trials"] = given.pop("trials", None) or 0
        given["sampler"] = SamplerSpec(given.get("sampler") or "")
        given["pruner"] = PrunerSpec(PRUNERS.check(given.get("pruner") or "none"))
        given["space_name"] = given.pop("space", None) or ""
        given["grid"] = tuple(given.get("grid") or ())
        n_gpus, n_ranks = given.get("gpus_per_trial", 0), given.get("ranks_per_trial", 1)
        if n_gpus % n_ranks:
            raise OptionError(
                f"%%distribute search: --gpus-per-trial {n_gpus} can't be divided among "
                f"--ranks-per-trial {n_ranks}; expected a multiple of it"
            )
        return super().chosen(given)

    def compile(
        self, cell: str, namespace: Mapping[str, Any], context: CellContext, options: CellOptions
    ) -> RunDraft:
        """A search from a cell.

        Raises
        ------
        OptionError
            An unknown sampler.
        CellError
            Syntax, an undefined name, a missing module, a metric that is never reported, a name to
            bring that the cell does not have.
        SpaceError
            No hyper-parameter, a contradictory one, or a grid that is too large.
        CaptureError
            A value that cannot be pickled, or is too large.
        """
        source = read_source(cell, context.cell_number, namespace)
        space = read_space(source, namespace, self.space_name or None, self.grid)
        names = read_names(source.tree, space.replaced)
        sampler = _choose_sampler(self, space, namespace)
        n_trials = _count_trials(self, sampler, space)
        also = [self.space_name] if self.space_name else []
        if sampler.in_notebook:
            also.append(sampler.name)
        parts = CellParts.of(options, source, names, namespace, context)
        captured, modules = parts.gather(known=space.space, injected=space.injected, also=also)
        _check_installed(sampler, frozenset(file.path.partition("/")[0] for file in modules.files))
        reports = reports_in(source.tree, namespace, captured.functions, modules.trees)
        if options.callbacks and not reports.metrics and LIBRARIES & {*modules.imports}:
            reports = Reports(open=True)  # it logs what it likes
        metric = choose_metric(self.metric or None, reports, names, source)
        verb = msgspec.structs.replace(
            self, metric=metric, n_trials=n_trials, space=space.space, sampler=sampler, grid=()
        )
        program, blobs, told = parts.program(captured, modules, space, self.space_name or None)
        notes = [*told, *self._notes(metric, metric in reports.metrics or reports.open)]
        return draft_run(
            verb, options, program, blobs, max_failures=options.max_failures, notes=notes
        )

    def trial_cell(self, program: Program, params: Mapping[str, ParamValue], title: str) -> str:
        return filled_cell(program, params, title)

    def _notes(self, metric: str, is_reported: bool) -> Iterator[str]:
        if not self.metric:
            yield f"metric: {metric}, the only one that the cell reports"
        if self.mode == "max" and any(part in metric.lower() for part in ("loss", "error", "mse")):
            yield f"{metric} is maximised; pass --mode min if smaller is better"
        if self.pruner.name != "none" and not is_reported:
            yield f"{metric} is never reported, so --pruner {self.pruner.name} stops no trial"

    def describe(self) -> Iterator[str]:
        yield f"Search: {self.n_trials} trials, {self.metric} ({self.mode})"
        yield f"Sampler: {self.sampler.name}; pruner: {self.pruner.name}"
        if is_finite(self.space):
            yield f"Grid points: {format_count(n_grid_points(self.space))}"
        if self.ranks_per_trial > 1 or self.gpus_per_trial:
            yield f"Per trial: {self.ranks_per_trial} ranks, {self.gpus_per_trial} GPUs"
        yield "Hyper-parameters:"
        yield from space_lines(self.space)

    # -- what everybody asks -------------------------------------------------------------------

    @property
    def objective(self) -> Search:
        return self

    @property
    def study(self) -> Search:
        return self

    @property
    def ranks(self) -> RankNeeds:
        return RankNeeds(
            n_ranks=self.ranks_per_trial,
            n_fewest=self.ranks_per_trial,
            gpus_per_rank=self.gpus_per_trial // self.ranks_per_trial,
            is_group=self.ranks_per_trial > 1,
            ranks_option="--ranks-per-trial",
            gpus_option=f"--gpus-per-trial {self.gpus_per_trial}",
        )

    def admitted(self, *, n_slots: int, gpus_per_rank: int) -> Search:
        if self.window is not None:
            return self
        # Fixed, so that a resumed run asks in the same order.
        return msgspec.structs.replace(self, window=2 * (self.max_parallel or n_slots))

    @property
    def group_text(self) -> str:
        return f"{self.ranks_per_trial} per trial" if self.ranks_per_trial > 1 else ""


def _choose_sampler(search: Search, space: CellSpace, namespace: Mapping[str, Any]) -> SamplerSpec:
    """The sampler that was asked for, or the one that fits.

    A search whose parameters all come from ``--grid``, without ``--trials``, is a grid; any
    other is random.
    """
    name = search.sampler.name
    if not name:
        whole_grid = space.grid_only and not search.n_trials and is_finite(space.space)
        return SamplerSpec(name="grid" if whole_grid else "random")
    if name in SAMPLERS.built_in:
        return search.sampler
    if name in namespace:
        return SamplerSpec(name=name, in_notebook=True)
    module, colon, kind = name.partition(":")
    dotted = all(part.isidentifier() for part in (*module.split("."), kind))
    if not colon or not dotted:
        variables = [key for key in namespace if not key.startswith("_")]
        SAMPLERS.check(name, also=("module:Class", "a notebook variable"), near=variables)
        # A package's: its code is a user's, and so it runs where that of cells does.
        return SamplerSpec(name=SAMPLERS.target(name))
    return search.sampler


def _check_installed(sampler: SamplerSpec, local_tops: frozenset[str]) -> None:
    """Refuse ``module:Class`` whose package is neither installed nor beside the notebook."""
    module, colon, _ = sampler.name.partition(":")
    top = module.partition(".")[0]
    if colon and top not in local_tops and not is_installed(top):
        raise CellError(
            f"--sampler {sampler.name}: module {top!r} is not installed here and no {top}.py lies "
            f"beside the notebook",
            module=top,
        )


def _count_trials(search: Search, sampler: SamplerSpec, space: CellSpace) -> int:
    """Number of trials: ``--trials``, or all points of a grid, or 20."""
    if sampler.name != "grid":
        return search.n_trials or DEFAULT_TRIALS
    n_points = check_grid(space.space)
    return min(search.n_trials, n_points) if search.n_trials else n_points


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
