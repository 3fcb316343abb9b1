"""What each command of ``jupyter ddl`` does.  Each returns the exit status."""

from __future__ import annotations

import shutil
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from jupyter_ddl.cli.environment import environment
from jupyter_ddl.client.history import find_run, live_runs, remove_run, stop_from
from jupyter_ddl.client.run import Run
from jupyter_ddl.errors import OptionError

if TYPE_CHECKING:
    from jupyter_ddl.client.clusters import Cluster
    from jupyter_ddl.views.drawing import Drawing

__all__ = ["ACTIONS"]


def _clusters(_: Namespace) -> int:
    from jupyter_ddl.client.clusters import list_clusters
    from jupyter_ddl.views.lists import render_clusters
    from jupyter_ddl.views.tables import cluster_row

    rows = [cluster_row(each.status()) for each in list_clusters()]
    return _show_drawing(render_clusters(rows, current=None, width=_width()))


def _runs(_: Namespace) -> int:
    from jupyter_ddl.client.history import list_with_state
    from jupyter_ddl.views.lists import run_row
    from jupyter_ddl.views.tables import render_runs

    now_s = time.time()
    rows = [run_row(summary, live=live, now_s=now_s) for summary, live in list_with_state()]
    return _show_drawing(render_runs(rows, now_s=now_s, width=_width()))


def _start(options: Namespace) -> int:
    from jupyter_ddl.client.commands import start_from

    return _begun(start_from(options, lambda phase: _say(f"{phase} …")))


def _connect(options: Namespace) -> int:
    from jupyter_ddl.client.commands import connect_from

    return _begun(connect_from(options, lambda phase: _say(f"{phase} …")))


def _begun(started: Cluster) -> int:
    from jupyter_ddl.client.session import session

    n_workers = len(started.status().workers)
    noun = "worker" if n_workers == 1 else "workers"
    _say(f"cluster {started.name} is ready with {n_workers} {noun}")
    if session().resumed:
        _say(f"it goes on with unfinished runs: {', '.join(session().resumed)}")
    return 0


def _doctor(options: Namespace) -> int:
    from jupyter_ddl.client.kube_clusters import examine_from, print_rbac

    if options.print_rbac:
        _say(print_rbac(options.namespace).rstrip())
        return 0
    findings = examine_from(options)
    for found in findings:
        _say(f"{found.verdict:<8}{found.what}: {found.text}")
    return int(any(found.verdict == "broken" for found in findings))


def _attach(options: Namespace) -> int:
    from jupyter_ddl.client.session import session
    from jupyter_ddl.client.waiting import wait_for_run
    from jupyter_ddl.views.display import LiveDisplay, TerminalScreen

    run = Run(find_run(options.run))
    if run.snapshot().finished_at_s is None and run.id not in live_runs():
        _say(f"nothing drives run {run.id} now: starting cluster {run.spec.cluster} to go on")
    display = LiveDisplay(TerminalScreen())
    try:
        last = wait_for_run(
            session(), run.id, None, display.offer, on_tick=display.tick, on_interrupt="leave"
        )
        run.raise_for_failure(last.decode())
    except KeyboardInterrupt:
        display.finish()
        _say(f"run {run.id} goes on; `jupyter ddl attach {run.id}` shows it again")
        return 0
    finally:
        display.finish()
    return 0


def _stop(options: Namespace) -> int:
    if (options.run is None) == (options.cluster is None):
        raise OptionError("stop: give either a RUN or --cluster NAME")
    if options.cluster is not None:
        from jupyter_ddl.client.commands import chosen_cluster

        chosen_cluster(options.cluster).stop()
        _say(f"cluster {options.cluster} has ended")
        return 0
    _say(stop_from(Run(find_run(options.run)), options))
    return 0


def _show(options: Namespace) -> int:
    from jupyter_ddl.views.details import render_details

    run = Run(find_run(options.run))
    return _show_drawing(
        render_details(run.snapshot(), run.spec, directory=run.directory, now_s=time.time())
    )


def _logs(options: Namespace) -> int:
    if (options.run is None) == (options.cluster is None):
        raise OptionError("logs: give either a RUN or --cluster NAME")
    if options.cluster is not None:
        from jupyter_ddl.client.commands import chosen_cluster

        text = chosen_cluster(options.cluster).logs(None, options.lines)
    else:
        text = Run(find_run(options.run)).logs(trial=options.trial, rank=options.rank)
    sys.stdout.write(text if text.endswith("\n") or not text else f"{text}\n")
    return 0


def _compare(options: Namespace) -> int:
    from jupyter_ddl.views.compare import ComparedRun, render_compare

    runs = [Run(find_run(text)) for text in (options.first, options.second)]
    pair = [ComparedRun(run.snapshot(), run.spec) for run in runs]
    return _show_drawing(render_compare(*pair, now_s=time.time()))


def _export(options: Namespace) -> int:
    from jupyter_ddl.recording.export import export_run

    run = Run(find_run(options.run))
    if options.tensorboard is None:
        _say(export_run(run.id, options.file, overwrite=options.overwrite))
        return 0
    target = Path(options.tensorboard).expanduser()
    try:
        _say(f"tensorboard --logdir {run.tensorboard(target)}")
    except OSError as error:
        raise OptionError(f"export: {target}: {error.strerror}") from None
    return 0


def _remove(options: Namespace) -> int:
    ids = list(dict.fromkeys(find_run(text) for text in options.runs))
    if not options.yes and not _agreed(ids):
        _say("nothing was deleted; --yes deletes without asking")
        return 1
    for run_id in ids:
        remove_run(run_id)
        _say(f"run {run_id} is deleted")
    return 0


def _agreed(ids: list[str]) -> bool:
    if not sys.stdin.isatty():
        return False
    answer = input(f"delete {', '.join(ids)} with logs and values? [y/N] ")
    return answer.strip().lower() in ("y", "yes")


def _show_drawing(drawing: Drawing) -> int:
    _say(repr(drawing))
    return 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _width() -> int:
    return shutil.get_terminal_size((100, 24)).columns - 1


ACTIONS: dict[str, Callable[[Namespace], int]] = {
    "clusters": _clusters,
    "runs": _runs,
    "start": _start,
    "connect": _connect,
    "env": environment,
    "doctor": _doctor,
    "attach": _attach,
    "stop": _stop,
    "show": _show,
    "logs": _logs,
    "compare": _compare,
    "export": _export,
    "rm": _remove,
}
