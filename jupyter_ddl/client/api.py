"""The Python twins of ``%%distribute``: from scripts, tests and papermill, without IPython."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jupyter_ddl.cell.draft import CellContext
from jupyter_ddl.cell.source import globals_of_caller
from jupyter_ddl.cell.work_folder import work_folder
from jupyter_ddl.client.objectives import objective_of
from jupyter_ddl.client.run import Run
from jupyter_ddl.client.submit import resume_run, submit
from jupyter_ddl.protocol.snapshot import RunSnapshot
from jupyter_ddl.protocol.space import Distribution
from jupyter_ddl.verbs.base import Line, Verb
from jupyter_ddl.verbs.ddp import Ddp
from jupyter_ddl.verbs.map import Map
from jupyter_ddl.verbs.search import Search

__all__ = ["map_cell", "search", "train"]

OnSnapshot = Callable[[RunSnapshot], Any]
_VALUE = "objective"
_SPACE = "search_space"
_ITEMS = "items"
_ARGS = "train_args"
_KWARGS = "train_kwargs"


def search(
    cell: str | Callable[..., Any],
    *,
    space: Mapping[str, Distribution | Sequence[Any] | Mapping[Any, Any]] | None = None,
    namespace: Mapping[str, Any] | None = None,
    on_snapshot: OnSnapshot | None = None,
    **options: Any,
) -> Run:
    """Search hyper-parameters of a cell's source, or of a function.

    Parameters
    ----------
    cell : str or callable
        Source as it stands in a notebook cell; or a function of the parameters in ``space``, or of
        one dict of them (as Ray Tune and hyperopt call it), or of an Optuna trial.  It returns the
        objective, or a dict that has it, or reports it.
    space : mapping, optional
        Distributions by name; a dict in the place of one is a choice of its keys, each with what is
        searched below it.  Needed for a function that takes no trial.
    namespace : mapping, optional
        Where the source's free names come from; by default the caller's globals.
    on_snapshot : callable, optional
        Gets snapshots while the call waits.
    **options
        The options of ``%%distribute search`` with ``_`` for ``-`` (``metric``, ``mode``,
        ``trials``, ``sampler``, ``wait`` …; durations in seconds).

    Raises
    ------
    CellError
        No search can be made of the cell, space or options; nothing was started.
    RunFailedError
        Every trial failed; the message is the first cause.
    """
    main = globals_of_caller() if namespace is None else namespace
    names = dict(main)
    if callable(cell):
        found = objective_of(cell, space, options.setdefault("metric", _VALUE))
        source, space = found.source, found.space
        names |= found.names
    else:
        source = cell
    if space is not None:
        names[_SPACE] = dict(space)
        options["space"] = _SPACE
    return _run(Search.from_python(options), source, names, main, on_snapshot)


def map_cell(
    cell: str | Callable[[Any], Any],
    over: Sequence[Any] | str,
    *,
    namespace: Mapping[str, Any] | None = None,
    on_snapshot: OnSnapshot | None = None,
    **options: Any,
) -> Run:
    """Run a cell's source, or a function, once per element; ``run.values`` has the results.

    Parameters
    ----------
    cell : str or callable
        Source that sees the element as ``item``, or a function of the element.
    over : sequence or str
        The elements, or the name of a sequence in ``namespace``.
    """
    main = globals_of_caller() if namespace is None else namespace
    names = dict(main)
    element = options.pop("element", "item")
    if not isinstance(over, str):
        names[_ITEMS] = over
        over = _ITEMS
    if callable(cell):
        names[cell.__name__] = cell
        source = f"{cell.__name__}({element})\n"
    else:
        source = cell
    line = Map.from_python({**options, "over": [f"{element} in {over}"]})
    return _run(line, source, names, main, on_snapshot)


def train(
    cell: str | Callable[..., Any],
    n: int,
    *,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    namespace: Mapping[str, Any] | None = None,
    on_snapshot: OnSnapshot | None = None,
    **options: Any,
) -> Run:
    """Train data-parallel: a cell's source, or a function, once on each of ``n`` ranks.

    ``run.values`` lists what the ranks return, ``run.value(name, rank=…)`` what they bring.

    Parameters
    ----------
    cell : str or callable
        Source as it stands in a notebook cell, or a function.
    n : int
        Number of ranks, at least 1.
    args, kwargs : optional
        What the function is called with, the same on every rank.
    namespace : mapping, optional
        Where the source's free names come from; by default the caller's globals.
    on_snapshot : callable, optional
        Gets snapshots while the call waits.
    **options
        The options of ``%%distribute ddp`` with ``_`` for ``-`` (``backend``, ``min_ranks``,
        ``max_restarts``, ``hang_timeout_s``, ``strategy``, ``bring``, ``wait`` …).

    Raises
    ------
    CellError
        The cell or the options make no run; nothing was started.
    RunFailedError
        Every round failed; the message is the first cause with its rank.
    """
    main = globals_of_caller() if namespace is None else namespace
    names = dict(main)
    if callable(cell):
        names |= {cell.__name__: cell, _ARGS: tuple(args), _KWARGS: dict(kwargs or {})}
        source = f"{cell.__name__}(*{_ARGS}, **{_KWARGS})\n"
    else:
        source = cell
    line = Ddp.from_python({**options, "n_ranks": n})
    return _run(line, source, names, main, on_snapshot)


def _run(
    line: Line[Verb],
    source: str,
    names: Mapping[str, Any],
    main: Mapping[str, Any],
    on_snapshot: OnSnapshot | None,
) -> Run:
    verb, options = line
    context = CellContext(cell_number=None, notebook_dir=work_folder(), main_globals=main)
    draft = verb.compile(source, names, context, options)
    if options.resume:
        run = resume_run(options.resume, draft, options.env_check)
    else:
        run = submit(draft, env_check=options.env_check, cell=source)
    return run.wait(on_snapshot=on_snapshot) if options.wait else run
