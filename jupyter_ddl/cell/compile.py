"""A magic's options and a cell become a verb spec and a program: the way down begins here.

Everything that can be refused is refused here, before anything starts.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jupyter_ddl.cell.capture import Captured
from jupyter_ddl.cell.metric import choose_metric, reports_in
from jupyter_ddl.cell.modules import CellModules
from jupyter_ddl.cell.names import read_names
from jupyter_ddl.cell.options import DdpOptions, EnvCheck, MapOptions, Options, SearchOptions
from jupyter_ddl.cell.parts import CellParts
from jupyter_ddl.cell.sampler import check_installed, choose_sampler, count_trials
from jupyter_ddl.cell.sequence import read_items
from jupyter_ddl.cell.source import read_source
from jupyter_ddl.cell.space import CellSpace, read_space
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.protocol.run import Limits
from jupyter_ddl.protocol.sampling import PrunerSpec
from jupyter_ddl.protocol.verb import VerbSpec
from jupyter_ddl.verbs.ddp import Ddp
from jupyter_ddl.verbs.map import Map
from jupyter_ddl.verbs.search import Search

__all__ = [
    "CellContext",
    "CompiledCell",
    "compile_cell",
    "compile_ddp",
    "compile_map",
    "compile_search",
]


@dataclass(frozen=True, slots=True)
class CellContext:
    """Where the cell stands.

    Attributes
    ----------
    cell_number : int or None
        The ``n`` of ``In [n]``; None where there is none.
    notebook_dir : Path
        Folder of the notebook; modules below it travel.
    main_globals : mapping, optional
        Globals of functions defined in the notebook; by default the namespace itself.  Those
        functions will see the names of the rank that they run in.
    """

    cell_number: int | None
    notebook_dir: Path
    main_globals: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledCell:
    """A run that could be submitted.

    Attributes
    ----------
    blobs : tuple of (str, bytes or memoryview)
        Digests and bytes of the payload, its buffers (the notebook's own memory) and modules.
    notes : tuple of str
        Sentences worth telling the user.
    """

    verb: VerbSpec
    program: Program
    blobs: tuple[tuple[str, bytes | memoryview], ...]
    seed: int
    limits: Limits
    bring: tuple[str, ...]
    isolate: bool
    name: str
    env_check: EnvCheck | None
    out: str | None
    wait: bool
    dry_run: bool
    resume: str | None
    tensorboard: bool
    notes: tuple[str, ...]


def compile_cell(
    options: Options, cell: str, namespace: Mapping[str, Any], context: CellContext
) -> CompiledCell:
    """:func:`compile_search`, :func:`compile_map` or :func:`compile_ddp`, as the options are."""
    if isinstance(options, SearchOptions):
        return compile_search(options, cell, namespace, context)
    if isinstance(options, DdpOptions):
        return compile_ddp(options, cell, namespace, context)
    return compile_map(options, cell, namespace, context)


def compile_search(
    options: SearchOptions, cell: str, namespace: Mapping[str, Any], context: CellContext
) -> CompiledCell:
    """A search from its options and a cell.

    Parameters
    ----------
    cell
        What follows the magic's line.
    namespace
        The notebook's globals: the very dict, because its functions refer to it.

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
    source = read_source(cell, context.cell_number)
    space = read_space(source, namespace, options.space, options.grid)
    names = read_names(source.tree, space.replaced)
    sampler = choose_sampler(options, space, namespace)
    n_trials = count_trials(options, sampler, space)
    also = (options.space,) if options.space else ()
    if sampler.in_notebook:
        also = (*also, sampler.name)
    parts = CellParts(
        options=options,
        source=source,
        names=names,
        namespace=namespace,
        main_globals=namespace if context.main_globals is None else context.main_globals,
        notebook_dir=context.notebook_dir,
    )
    captured, modules = parts.gather(known=space.space, injected=space.injected, also=also)
    check_installed(sampler, frozenset(file.path.partition("/")[0] for file in modules.files))
    reports = reports_in(source.tree, namespace, captured.functions, modules.trees)
    metric = choose_metric(options.metric, reports, names, source)
    verb = Search(
        metric=metric,
        mode=options.mode,
        n_trials=n_trials,
        space=space.space,
        sampler=sampler,
        pruner=PrunerSpec(name=options.pruner),
        max_parallel=options.max_parallel,
        ranks_per_trial=options.ranks_per_trial,
        gpus_per_trial=options.gpus_per_trial,
    )
    notes = _search_notes(options, metric, metric in reports.metrics or reports.open)
    return _compiled(parts, verb, captured, modules, notes, space)


def compile_map(
    options: MapOptions, cell: str, namespace: Mapping[str, Any], context: CellContext
) -> CompiledCell:
    """A map from its options and a cell.

    The sequence travels under its own name, as a list.

    Raises
    ------
    CellError
        As for :func:`compile_search`, and for a sequence that is missing, empty, unsized or
        would be used up.
    CaptureError
        A value that cannot be pickled, or is too large.
    """
    source = read_source(cell, context.cell_number)
    names = read_names(source.tree)
    items = read_items(options.over, namespace)
    parts = CellParts(
        options=options,
        source=source,
        names=names,
        namespace={**namespace, options.over: items},
        main_globals=namespace if context.main_globals is None else context.main_globals,
        notebook_dir=context.notebook_dir,
    )
    element = options.element
    captured, modules = parts.gather(known=(element,), injected=(element,), also=(options.over,))
    verb = Map(
        over=options.over, element=element, n_items=len(items), max_parallel=options.max_parallel
    )
    notes: tuple[str, ...] = ()
    if element not in names.free:
        notes = (f"the cell never reads {element!r}, the element of {options.over}",)
    return _compiled(parts, verb, captured, modules, notes, None)


def compile_ddp(
    options: DdpOptions, cell: str, namespace: Mapping[str, Any], context: CellContext
) -> CompiledCell:
    """A data-parallel training from its options and a cell.

    The cell is compiled as it is: hyper-parameters take their default values.

    Raises
    ------
    CellError, CaptureError
        As for :func:`compile_search`; nothing needs to be declared or reported.
    """
    source = read_source(cell, context.cell_number)
    parts = CellParts(
        options=options,
        source=source,
        names=read_names(source.tree),
        namespace=namespace,
        main_globals=namespace if context.main_globals is None else context.main_globals,
        notebook_dir=context.notebook_dir,
    )
    captured, modules = parts.gather(known=(), injected=(), also=())
    gpus = options.gpus_per_rank
    verb = Ddp(
        n_ranks=options.n_ranks,
        min_ranks=options.min_ranks,
        backend=options.backend,
        gpus_per_rank=1 if options.backend == "nccl" and gpus is None else gpus,
        hang_timeout_s=options.hang_timeout_s,
        strategy=options.strategy,
        initialize=options.initialize,
    )
    notes: tuple[str, ...] = ()
    shrinks = options.min_ranks is not None and options.min_ranks < options.n_ranks
    if shrinks and not parts.calls("checkpoint", captured, modules):
        notes = ("the cell never calls checkpoint(…): with fewer ranks it begins at its start",)
    return _compiled(parts, verb, captured, modules, notes, None)


def _search_notes(options: SearchOptions, metric: str, reported: bool) -> tuple[str, ...]:
    notes: list[str] = []
    if options.metric is None:
        notes.append(f"metric: {metric}, the only one that the cell reports")
    if options.mode == "max" and any(part in metric.lower() for part in ("loss", "error", "mse")):
        notes.append(f"{metric} is maximised; pass --mode min if smaller is better")
    if options.pruner != "none" and not reported:
        notes.append(f"{metric} is never reported, so --pruner {options.pruner} stops no trial")
    return tuple(notes)


def _compiled(
    parts: CellParts,
    verb: VerbSpec,
    captured: Captured,
    modules: CellModules,
    notes: tuple[str, ...],
    space: CellSpace | None,
) -> CompiledCell:
    options, source = parts.options, parts.source
    program = Program(
        source=source.text,
        filename=source.filename,
        placeholders=space.placeholders if space else (),
        captures=captured.names,
        payload=captured.digest,
        buffers=tuple(digest for digest, _ in captured.buffers),
        modules=modules.files,
        imports=modules.imports,
        ends_in_expression=source.ends_in_expression,
        space_name=options.space if isinstance(options, SearchOptions) else None,
        space_labels=space.labels if space else {},
    )
    blobs: dict[str, bytes | memoryview] = {}
    if captured.digest is not None:
        blobs[captured.digest] = captured.payload
    blobs.update(captured.buffers)
    blobs.update(modules.contents)
    return CompiledCell(
        verb=verb,
        program=program,
        blobs=tuple(blobs.items()),
        seed=secrets.randbits(32) if options.seed is None else options.seed,
        limits=Limits(
            timeout_s=options.timeout_s,
            max_own_failures=_max_own_failures(options),
            admission_timeout_s=getattr(options, "admission_timeout_s", None),
        ),
        bring=options.bring,
        isolate=options.isolate,
        name=options.name,
        env_check=options.env_check,
        out=options.out,
        wait=options.wait,
        dry_run=options.dry_run,
        resume=options.resume,
        tensorboard=options.tensorboard,
        notes=notes,
    )


def _max_own_failures(options: Options) -> int:
    """Failures that end a trial; a group that restarts k times may fail k + 1 times."""
    if isinstance(options, DdpOptions):
        return options.max_restarts + 1
    return options.max_failures
