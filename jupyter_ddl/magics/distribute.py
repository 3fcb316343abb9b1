"""``%%distribute``: options and a cell become a run, shown until it ends."""

from __future__ import annotations

import pickle
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from IPython.core.error import UsageError

from jupyter_ddl.cell.options import CellOptions
from jupyter_ddl.errors import TrialError
from jupyter_ddl.formats import format_bytes, format_score
from jupyter_ddl.magics.bring_files import bring_files
from jupyter_ddl.magics.face import expand_line, shown
from jupyter_ddl.magics.fit_cell import fit_cell
from jupyter_ddl.magics.kernel import cell_number, notebook_path
from jupyter_ddl.magics.live import follow, watch
from jupyter_ddl.magics.run_cell import run_cell
from jupyter_ddl.protocol.verb import Driver
from jupyter_ddl.store.printed import settled
from jupyter_ddl.verbs.base import Verb, parse_line
from jupyter_ddl.views.cell_output import Phases, say, say_note

if TYPE_CHECKING:
    from jupyter_ddl.cell.draft import RunDraft
    from jupyter_ddl.client.run import Run
    from jupyter_ddl.protocol.snapshot import RunSnapshot

__all__ = ["distribute", "printed_text"]

_MAX_LINES = 20
_MAX_BYTES = 8_000
_LAST_RUN = "_run"
"""Name in the notebook that always holds the latest run."""


def distribute(shell: Any, line: str, cell: str | None) -> Any:
    """Carry out one ``%%distribute`` line; returns the value of a cell that runs here.

    Parameters
    ----------
    shell : InteractiveShell
        Its namespace is what the cell's free names come from, and where results go.
    cell : str or None
        None for the line magic, which only explains.
    """
    __tracebackhide__ = True  # IPython leaves our frames out of what a cell raises
    with shown():
        expanded = expand_line(line, shell.user_ns)
        verb, options = parse_line(expanded)
        if cell is None:
            raise UsageError(
                "%distribute needs a cell below it: write %%distribute, with two percent signs, "
                "on the cell's first line"
            )
        whole_line = f"%%distribute {expanded.strip()}"
        return _WAYS[verb.driver](shell, whole_line, verb, options, cell)


def _submit_cell(shell: Any, line: str, verb: Verb, options: CellOptions, cell: str) -> None:
    from jupyter_ddl.client.submit import check_supported

    notebook = notebook_path(shell.user_ns)
    if options.resume is not None and not options.dry_run:
        from jupyter_ddl.client.run_names import find_run

        with Phases() as steps:
            resumed = find_run(options.resume, say_note, steps)
        options = msgspec.structs.replace(options, resume=resumed)
    draft = _compile(shell, verb, options, cell, notebook)
    check_supported(draft)
    if options.dry_run:
        from jupyter_ddl.cell.dry_run import describe
        from jupyter_ddl.client.cost import cost_now
        from jupyter_ddl.client.environment import environment_now, places_now
        from jupyter_ddl.client.first_steps import scaling_now
        from jupyter_ddl.client.folder import folder_now

        scaling, was_begun = scaling_now(draft, options.env_check)
        lines = [
            *places_now(draft),
            *cost_now(draft.spec),
            *scaling,
            *folder_now(draft),
            *environment_now(draft, options.env_check, notebook),
        ]
        say(describe(draft, lines, was_begun=was_begun))
        return
    run = _start(draft, options, line, cell, notebook)
    _bind(shell, run, options)
    if run.spec.tensorboard:
        say(_tensorboard_lines(run))
    if not options.wait:
        if not follow(run):
            say(f"Run {run.id} goes on in the background: `%runs attach {run.id}` shows it.")
        return
    _finish(shell, run, options, watch(run))


def _compile(
    shell: Any, verb: Verb, options: CellOptions, cell: str, notebook: Path | None
) -> RunDraft:
    from jupyter_ddl.cell.draft import CellContext
    from jupyter_ddl.cell.work_folder import notebook_folder

    context = CellContext(cell_number=cell_number(shell), notebook_dir=notebook_folder(notebook))
    return verb.compile(cell, shell.user_ns, context, options)


def _start(
    draft: RunDraft, options: CellOptions, line: str, cell: str, notebook: Path | None
) -> Run:
    """Hand the run to a cluster, started where there is none; tells both in a line each."""
    from jupyter_ddl.client.session import session
    from jupyter_ddl.client.submit import resume_run, submit

    env_check = options.env_check
    with Phases() as phases:
        if options.resume is None:
            # Before the notes, and before anything is stored: no cluster, no run.
            session().ensure(phases)
            phases.done("ready")
    for note in draft.notes:
        say(f"Note: {note}.")
    if options.resume is None:
        return submit(
            draft,
            env_check=env_check,
            line=line,
            cell=cell,
            notebook=notebook,
            on_notice=say_note,
        )
    with Phases() as phases:
        run = resume_run(options.resume, draft, env_check, phases, say_note)
        phases.done("ready")
    return run


def _finish(shell: Any, run: Run, options: CellOptions, last: RunSnapshot) -> None:
    run.raise_for_failure(last)
    if last.can.has_ranks:
        text = printed_text(run.directory, last, options.out or _LAST_RUN)
        if text:
            say(text)
    if shown := _outputs_text(last, options.out or _LAST_RUN):
        say(shown)
    if last.state == "cancelled":
        say(_stopped(last))
    if options.bring:
        _bring(shell, run, options.bring)
    bring_files(run, options.bring_files, f"{_LAST_RUN}.files")


def _tensorboard_lines(run: Run) -> str:
    from jupyter_ddl.tracking.tensorboard.writing import tensorboard_dir

    path = shlex.quote(str(tensorboard_dir(run.id)))
    return f"Curves: %load_ext tensorboard\n        %tensorboard --logdir {path}"


def _outputs_text(last: RunSnapshot, name: str) -> str:
    """Whose figures and tables stand below the view, where others have some as well."""
    if last.n_outputs <= len(last.outputs):
        return ""
    if last.can.has_objective and last.best is not None and last.outputs:
        return (
            f"Above: what trial {last.best.number}, the best, has shown; "
            f"`{name}.show_outputs(trial=…)` shows that of others."
        )
    n_more = last.n_outputs - len(last.outputs)
    return f"`{name}.show_outputs()` shows {n_more:,} more figures and tables."


def _stopped(last: RunSnapshot) -> str:
    """What an interrupted run keeps, and how it goes on."""
    is_spent = any(row.budget is not None and row.amount >= row.budget for row in last.spending)
    needs = ", with a larger --budget" if is_spent else ""
    if last.can.has_ranks and last.checkpoint_step is None:
        line = f"`--resume {last.run_id}` starts over"
        return f"Stopped before a checkpoint was saved; {line}{needs}."
    if last.can.has_ranks:
        return (
            f"Stopped: this cell with `--resume {last.run_id}` goes on from its last checkpoint"
            f"{needs}."
        )
    n_kept = last.counts.complete + last.counts.pruned
    kept = f"{n_kept:,} of {last.n_trials:,} {last.nouns.trials} are finished"
    best = ""
    if last.best is not None:
        best = f", best {last.metric} {format_score(last.best.value)} at trial {last.best.number}"
    return f"Stopped: {kept}{best}; this cell with `--resume {last.run_id}` goes on{needs}."


def _bind(shell: Any, run: Run, options: CellOptions) -> None:
    names = {_LAST_RUN: run}
    if options.out is not None:
        names[options.out] = run
    shell.push(names)


def _bring(shell: Any, run: Run, names: tuple[str, ...]) -> None:
    """Put the brought variables into the notebook, one line each."""
    verb = run.spec.verb
    if verb.can.has_items:
        n_items = run.spec.n_trials
        numbers = range(n_items)
        brought = {name: [_of_item(run, name, number) for number in numbers] for name in names}
        source = f"{n_items:,} {verb.nouns.trials}"
    else:
        brought = run.bring()
        if verb.can.has_ranks:
            source = "rank 0"
        else:
            source = f"best trial {run.best.number}" if run.best is not None else "no trial"
    shell.push(dict(brought))
    for name in names:
        if name in brought:
            value = brought[name]
            say(f"{name} ← {source} ({_size(value)}, {type(value).__name__})")
        else:
            say(f"{name} was not brought: nothing is complete.")


def _of_item(run: Run, name: str, number: int) -> Any:
    """What one element brought; None where it failed."""
    try:
        return run.value(name, number)
    except TrialError:
        return None


def _size(value: Any) -> str:
    """Bytes of a value's pickle; arrays are counted and not copied."""
    import cloudpickle

    buffers: list[pickle.PickleBuffer] = []
    n_stream = len(cloudpickle.dumps(value, protocol=5, buffer_callback=buffers.append))
    return format_bytes(n_stream + sum(buffer.raw().nbytes for buffer in buffers))


_WAYS: dict[Driver, Callable[[Any, str, Any, CellOptions, str], Any]] = {
    "trials": _submit_cell,
    "fits": fit_cell,
    "cells": run_cell,
}
"""Where a cell is executed, by who drives its run."""


# -- what rank 0 of a training has printed, below the view of a cell that has ended ----------------


def printed_text(directory: Path, last: RunSnapshot, name: str) -> str:
    """The last lines of rank 0's last round, as `%%distribute run` shows them; may be empty.

    A cell that prints when it is executed plainly does so as a training, too.

    Parameters
    ----------
    directory : Path
        The run's.
    name : str
        What the notebook calls the run.
    """
    from jupyter_ddl.views.cell_output import render_rank_output

    # By the process: to fold all events of a long training would take seconds.
    pids = [row.pid for row in last.ranks if row.rank == 0]
    paths = [path for pid in pids for path in (directory / "logs").glob(f"*-{pid}.log")]
    if not paths:
        return ""
    text, is_cut = _end(paths[-1])
    shown = render_rank_output({0: text}, {})
    return f"… `{name}.logs(0)` has the earlier output:\n{shown}" if is_cut else shown


def _end(path: Path) -> tuple[str, bool]:
    """The end of a file, and whether something is before it."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - _MAX_BYTES))
        lines = settled(file.read().decode(errors="replace")).rstrip("\n").split("\n")
    if size > _MAX_BYTES and len(lines) > 1:
        del lines[0]  # it begins somewhere in a line
    return "\n".join(lines[-_MAX_LINES:]), size > _MAX_BYTES or len(lines) > _MAX_LINES
