"""``%runs`` and ``jupyter ddl runs``: list, inspect, watch, stop, compare, export and delete."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_ddl.client.copies import bring_blobs, reach_run
from jupyter_ddl.client.elsewhere import join_elsewhere
from jupyter_ddl.client.history import list_runs, live_runs, remove_run, repair_run, stop_run
from jupyter_ddl.client.run import Run
from jupyter_ddl.client.run_names import find_run
from jupyter_ddl.commands.face import Answer, Face, Printed
from jupyter_ddl.errors import LedgerError, OptionError
from jupyter_ddl.grammar import Command, Grammar, Group, argument, count
from jupyter_ddl.plugins import FORMS

if TYPE_CHECKING:
    from jupyter_ddl.views.drawing import Drawing

__all__ = ["RUNS", "compare_runs"]


def _run(face: Face, text: str) -> Run:
    """The run that is meant, as its cluster tells it now, wherever that is."""
    with face.steps() as steps:
        run_id = find_run(text, face.say, steps)
        troubles = reach_run(run_id, steps)
    for line in troubles:
        face.say(line)
    return Run(run_id)


def _id(face: Face, text: str) -> str:
    with face.steps() as steps:
        return find_run(text, face.say, steps)


def _list(face: Face) -> Answer:
    from jupyter_ddl.views.tables import render_runs

    with face.steps() as steps:
        troubles = join_elsewhere(steps)
    return Answer(render_runs(list_runs(), now_s=time.time(), width=face.width), *troubles)


def _show(face: Face, run: str) -> Answer:
    from jupyter_ddl.views.details import render_details

    shown = _run(face, run)
    if shown.damage:
        face.say(shown.damage)
    return Answer(
        render_details(shown.snapshot(), shown.spec, directory=shown.directory, now_s=time.time())
    )


def _attach(face: Face, run: str) -> Answer:
    watched = _run(face, run)
    if watched.spec.verb.can.has_cells:
        raise OptionError(
            f"%runs attach: {watched.id} is a persistent group; `%%distribute run` gives it cells, "
            f"`%runs show {watched.id}` lists those that it has executed"
        )
    if watched.damage:
        raise LedgerError(watched.damage)
    if watched.snapshot().finished_at_s is None and watched.id not in live_runs():
        cluster = watched.spec.cluster
        face.say(f"Nothing drives run {watched.id} now: starting cluster {cluster} to go on.")
    face.watch(watched)
    return Answer()


def _stop(face: Face, run: str, trial: int | None, after_report: bool, now: bool) -> Answer:
    del after_report  # what happens by default, too
    return Answer(stop_run(_run(face, run), trial=trial, now=now))


def _logs(face: Face, run: str, trial: int | None, rank: int | None) -> Answer:
    text = _run(face, run).logs(trial=trial, rank=rank)
    return Answer(Printed(text.rstrip("\n")) or "Nothing was printed.")


def _compare(face: Face, first: str, second: str) -> Answer:
    return Answer(compare_runs(_run(face, first).id, _run(face, second).id))


def compare_runs(*run_ids: str, has_curves: bool = True) -> Drawing:
    """Two runs or more side by side; without curves, for who draws them itself."""
    from jupyter_ddl.views.compare import ComparedRun, render_compare

    compared = [ComparedRun(run.snapshot(), run.spec) for run in map(Run, run_ids)]
    return render_compare(*compared, now_s=time.time(), has_curves=has_curves)


def _profile(face: Face, run: str) -> Answer:
    from jupyter_ddl.views.profile import render_profile

    shown = _run(face, run)
    found = shown.profile
    if found.empty:
        raise OptionError(
            f"%runs profile: run {shown.id} has no trace; `--profile N` on the line of a ddp, "
            f"search or map cell records N steps of each rank"
        )
    rows: list[Any] = found.to_dict("records")
    return Answer(render_profile(rows, width=face.width))


def _export(
    face: Face,
    run: str,
    file: str | None,
    tensorboard: str | None,
    kind: str | None,
    image: str | None,
    overwrite: bool,
    strict: bool,
) -> Answer:
    exported = _run(face, run)
    if file is not None and kind:
        from jupyter_ddl.standalone.export import export_program

        if strict:
            raise OptionError(f"%runs export --as {kind}: --strict is for recordings; leave it out")
        bring_blobs(exported.spec)
        given = image or ""
        return Answer(export_program(exported.id, file, kind, image=given, overwrite=overwrite))
    if kind or image:
        option = "--as" if kind else "--image"
        raise OptionError(f"%runs export: {option} needs a FILE, as in `FILE.yaml --as job`")
    if file is not None:
        from jupyter_ddl.recording.page import export_run

        return Answer(export_run(exported.id, file, overwrite=overwrite, strict=strict))
    target = Path(tensorboard or "").expanduser()
    try:
        line = f"tensorboard --logdir {shlex.quote(str(exported.tensorboard(target)))}"
    except OSError as error:
        raise OptionError(f"%runs export: {target}: {error.strerror}") from None
    return Answer(f"%load_ext tensorboard\n%{line}" if face.is_notebook else line)


def _remove(face: Face, runs: Sequence[str], yes: bool) -> Answer:
    ids = list(dict.fromkeys(_id(face, text) for text in runs))
    if not yes and not face.agrees(f"Delete {', '.join(ids)} with logs and values?"):
        return Answer("Nothing was deleted; --yes deletes without asking.", is_good=False)
    for run_id in ids:
        remove_run(run_id, face.say)
        face.say(f"Run {run_id} is deleted.")
    return Answer()


def _repair(face: Face, run: str) -> Answer:
    return Answer(repair_run(_id(face, run)))


def _replay(face: Face, file: str, speed: float) -> Answer:
    from jupyter_ddl.recording.show import replay

    return Answer(replay(file, speed, face.say))


_RUN = argument(
    "run",
    metavar="RUN",
    help="a name (of several runs the newest), an id, the beginning of one, or `last`",
    offers="runs",
)

RUNS = Grammar(
    "%runs",
    "Your runs, also of other notebooks and of clusters elsewhere; without a command: the list.",
    [
        Command("list", "All runs, newest first.", (), _list),
        Command(
            "show",
            "A run's options and notices, its results, and the line to run it again.",
            (_RUN,),
            _show,
        ),
        Command("attach", "Watch a run until its end; leaving does not stop it.", (_RUN,), _attach),
        Command(
            "stop",
            "Stop a run, or one trial of it, at its next report.",
            (
                _RUN,
                argument("--trial", type=count(0), metavar="N", help="one trial only"),
                Group(
                    (
                        argument(
                            "--after-report",
                            action="store_true",
                            help="at the next report (default)",
                        ),
                        argument("--now", action="store_true", help="at once"),
                    ),
                    exclusive=True,
                ),
            ),
            _stop,
        ),
        Command(
            "logs",
            "Everything that a run printed.",
            (
                _RUN,
                argument("--trial", type=count(0), metavar="N", help="default: all trials"),
                argument("--rank", type=count(0), metavar="R", help="default: all ranks"),
            ),
            _logs,
        ),
        Command(
            "compare",
            "Two runs side by side.",
            (
                argument("first", metavar="A", offers="runs"),
                argument("second", metavar="B", offers="runs"),
            ),
            _compare,
        ),
        Command(
            "profile",
            "The costliest operations of a run with --profile, and where its traces lie.",
            (_RUN,),
            _profile,
        ),
        Command(
            "export",
            "Write a run as a recording, a page, for TensorBoard, or as a program of its own.",
            (
                _RUN,
                Group(
                    (
                        argument(
                            "file",
                            nargs="?",
                            metavar="FILE",
                            help="a recording (.jsonl, .jsonl.gz), a page that plays it (.html), "
                            "or what --as says (.py, .yaml)",
                        ),
                        argument("--tensorboard", metavar="DIR", help="event files of TensorBoard"),
                    ),
                    exclusive=True,
                    required=True,
                ),
                argument(
                    "--as",
                    dest="kind",
                    type=FORMS.argument,
                    metavar="KIND",
                    offers=FORMS.names,
                    help="leave the notebook: script (a program that needs no jupyter_ddl), job (a "
                    "batch Job of it), trainjob (a training, for Trainer), katib (a search)",
                ),
                argument(
                    "--image",
                    metavar="IMAGE",
                    help="what containers of it run in; default: the image of the run's workers, "
                    "or of this notebook",
                ),
                argument(
                    "--overwrite", action="store_true", help="replace the file if it is there"
                ),
                argument(
                    "--strict",
                    action="store_true",
                    help="write nothing if a string is left that may be a secret",
                ),
            ),
            _export,
        ),
        Command(
            "rm",
            "Delete runs: records, logs, checkpoints and values.",
            (
                argument("runs", nargs="+", metavar="RUN", offers="runs"),
                argument("--yes", action="store_true", help="do not ask"),
            ),
            _remove,
        ),
        Command(
            "repair",
            "Keep what stands before damage in a run's record, with a copy of it as it was.",
            (_RUN,),
            _repair,
        ),
        Command(
            "replay",
            "Play a recording in the live view; no cluster is needed.",
            (
                argument(
                    "file",
                    metavar="FILE",
                    help="what `%runs export` wrote, or a run",
                    offers="runs",
                ),
                argument(
                    "--speed",
                    type=float,
                    default=4.0,
                    metavar="X",
                    help="times faster than the run (4)",
                ),
            ),
            _replay,
            only_in_notebooks=True,
        ),
    ],
    bare="list",
)
