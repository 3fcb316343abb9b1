"""``%runs``: list, inspect, watch, stop, compare, export and delete runs."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

from IPython.display import display

from jupyter_ddl.errors import OptionError
from jupyter_ddl.magics.cell_output import say
from jupyter_ddl.magics.expansion import expand_line
from jupyter_ddl.magics.failures import shown
from jupyter_ddl.protocol.run import GroupSpec

__all__ = ["runs"]


def runs(shell: Any, line: str) -> None:
    """Carry out one ``%runs`` line."""
    from jupyter_ddl.client.commands import RUNS

    with shown():
        command, values = RUNS.parse_line(expand_line(line, shell.user_ns))
        _ACTIONS[command.name](shell, Namespace(**values))


def _list(_shell: Any, _options: Namespace) -> None:
    from jupyter_ddl.client.history import list_with_state
    from jupyter_ddl.views.lists import run_row
    from jupyter_ddl.views.tables import render_runs

    now_s = time.time()
    rows = [run_row(summary, live=live, now_s=now_s) for summary, live in list_with_state()]
    display(render_runs(rows, now_s=now_s))


def _show(_shell: Any, options: Namespace) -> None:
    from jupyter_ddl.views.details import render_details

    run = _run(options.run)
    now_s = time.time()
    drawn = render_details(run.snapshot(), run.spec, directory=run.directory, now_s=now_s)
    display(drawn)


def _attach(shell: Any, options: Namespace) -> None:
    from jupyter_ddl.client.history import live_runs
    from jupyter_ddl.magics.live import watch

    run = _run(options.run)
    if isinstance(run.spec.verb, GroupSpec):
        raise OptionError(
            f"%runs attach: {run.id} is a persistent group; `%%distribute run` gives it cells, "
            f"`%runs show {run.id}` lists those that it has executed"
        )
    shell.push({"_run": run})
    if run.snapshot().finished_at_s is None and run.id not in live_runs():
        say(f"Nothing drives run {run.id} now: starting cluster {run.spec.cluster} to go on.")
    run.raise_for_failure(watch(run, on_interrupt="leave"))


def _stop(_shell: Any, options: Namespace) -> None:
    from jupyter_ddl.client.history import stop_from

    text = stop_from(_run(options.run), options)
    say(f"{text[0].upper()}{text[1:]}.")


def _logs(_shell: Any, options: Namespace) -> None:
    text = _run(options.run).logs(trial=options.trial, rank=options.rank)
    say(text.rstrip("\n") or "Nothing was printed.")


def _compare(_shell: Any, options: Namespace) -> None:
    from jupyter_ddl.views.compare import ComparedRun, render_compare

    first, second = _run(options.first), _run(options.second)
    pair = [ComparedRun(run.snapshot(), run.spec) for run in (first, second)]
    display(render_compare(*pair, now_s=time.time()))


def _export(_shell: Any, options: Namespace) -> None:
    from jupyter_ddl.recording.export import export_run

    run = _run(options.run)
    if options.tensorboard is None:
        say(export_run(run.id, options.file, overwrite=options.overwrite))
        return
    target = Path(options.tensorboard).expanduser()
    try:
        say(f"%load_ext tensorboard\n%tensorboard --logdir {run.tensorboard(target)}")
    except OSError as error:
        raise OptionError(f"%runs export: {target}: {error.strerror}") from None


def _replay(_shell: Any, options: Namespace) -> None:
    from jupyter_ddl.recording.show import replay

    display(replay(options.file, options.speed))


def _remove(shell: Any, options: Namespace) -> None:
    from jupyter_ddl.client.history import find_run, remove_run

    ids = list(dict.fromkeys(find_run(text) for text in options.runs))
    if not options.yes and not _agreed(shell, ids):
        say("Nothing was deleted; --yes deletes without asking.")
        return
    for run_id in ids:
        remove_run(run_id)
        say(f"Run {run_id} is deleted.")


def _agreed(shell: Any, ids: list[str]) -> bool:
    """Ask; a front end that cannot be asked (nbconvert, papermill) counts as a no."""
    from IPython.core.error import StdinNotImplementedError

    try:
        return bool(shell.ask_yes_no(f"Delete {', '.join(ids)} with logs and values? [y/N]", "n"))
    except StdinNotImplementedError:
        return False


def _run(text: str) -> Any:
    from jupyter_ddl.client.history import find_run
    from jupyter_ddl.client.run import Run

    return Run(find_run(text))


_ACTIONS: dict[str, Callable[[Any, Namespace], None]] = {
    "list": _list,
    "show": _show,
    "attach": _attach,
    "stop": _stop,
    "logs": _logs,
    "compare": _compare,
    "export": _export,
    "replay": _replay,
    "rm": _remove,
}
