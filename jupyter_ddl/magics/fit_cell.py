"""``%%distribute fit``: the cell runs here, its fits on the cluster, shown while they run."""

from __future__ import annotations
import __future__

import ast
from typing import TYPE_CHECKING, Any

import msgspec

from jupyter_ddl.cell.options import CellOptions
from jupyter_ddl.cell.work_folder import notebook_folder
from jupyter_ddl.errors import FitStoppedError, OptionError
from jupyter_ddl.magics.bring_files import bring_files
from jupyter_ddl.magics.kernel import cell_number, notebook_path
from jupyter_ddl.magics.live import LiveFit
from jupyter_ddl.views.cell_output import Phases, say, say_note

if TYPE_CHECKING:
    from jupyter_ddl.client.run import Run
    from jupyter_ddl.sklearn_fit.exchange import FitSetting
    from jupyter_ddl.verbs.fit import Fit

__all__ = ["fit_cell"]


def fit_cell(shell: Any, line: str, verb: Fit, options: CellOptions, cell: str) -> Any:
    """Run the cell; returns the value of its last expression, if it ends in one."""
    from jupyter_ddl.sklearn_fit.context import distributed_fits

    __tracebackhide__ = True
    number = cell_number(shell) or 0
    body, last = _compiled(shell, cell, number)
    live = LiveFit()
    try:
        chosen = msgspec.structs.replace(options, resume=_resumed(options.resume, cell))
        setting = _setting(shell, line, verb, chosen, cell, live)
        with distributed_fits(setting) as fits:
            exec(body, shell.user_ns)
            value = None if last is None else eval(last, shell.user_ns)
    except FitStoppedError as stopped:
        live.finish()
        say(f"Stopped: {stopped.message.removeprefix('the fit was stopped: ')}.")
        return None
    except BaseException:
        live.finish()
        raise
    live.finish()
    if fits.run is None:
        say_note("the cell has fitted nothing in parallel, so nothing went to the cluster")
    else:
        bring_files(fits.run, options.bring_files, "_run.files")
    return value


def _setting(
    shell: Any, line: str, verb: Fit, options: CellOptions, cell: str, live: LiveFit
) -> FitSetting:
    from jupyter_ddl.sklearn_fit.exchange import FitSetting

    notebook = notebook_path(shell.user_ns)
    phases = Phases()

    def on_run(run: Run) -> None:
        phases.done("ready")
        live.begin(run)
        shell.push({"_run": run} | ({} if options.out is None else {options.out: run}))

    return FitSetting(
        namespace=shell.user_ns,
        folder=notebook_folder(notebook),
        verb=verb,
        options=options,
        cell_number=cell_number(shell) or 0,
        line=line,
        cell=cell,
        notebook=notebook,
        on_phase=phases,
        on_snapshot=live.snapshot,
        on_tick=live.tick,
        on_run=on_run,
    )


def _resumed(run_id: str | None, cell: str) -> str | None:
    """The run to go on with.

    Raises
    ------
    OptionError
        It is none of fits, or of another cell.
    """
    if run_id is None:
        return None
    from jupyter_ddl.client.run import Run
    from jupyter_ddl.client.run_names import find_run

    with Phases() as steps:
        run = Run(find_run(run_id, say_note, steps))
    if not run.spec.verb.is_fed:
        raise OptionError(f"--resume {run.id}: this is not a run of `%%distribute fit`")
    if run.spec.provenance.cell.strip() != cell.strip():
        say_note(
            f"the cell is not the one that run {run.id} was made of: what is the same is reused, "
            "the rest is computed"
        )
    return run.id


def _compiled(shell: Any, cell: str, number: int) -> tuple[Any, Any]:
    """Code of the cell, and of its last expression; lines are the notebook's own."""
    source = shell.transform_cell("\n" + cell)
    filename = shell.compile.cache(source, number)
    tree = ast.parse(source, filename)
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr) and not _is_silent(source):
        last = ast.Expression(tree.body.pop().value)
    # Of the notebook, and not of this file, which takes annotations from the future.
    flags = shell.compile.flags & __future__.annotations.compiler_flag
    body = compile(tree, filename, "exec", flags, dont_inherit=True)
    return body, last and compile(last, filename, "eval", flags, dont_inherit=True)


def _is_silent(source: str) -> bool:
    return source.rstrip().endswith(";")
