"""Stopping a run or one of its trials, as the magic and the command line do it."""

from __future__ import annotations

import argparse

from jupyter_ddl.cell import values
from jupyter_ddl.client.history import live_runs
from jupyter_ddl.client.run import Run
from jupyter_ddl.errors import ControllerError
from jupyter_ddl.spec.fit import FitSpec

__all__ = ["add_stop_options", "stop_from"]


def add_stop_options(parser: argparse.ArgumentParser) -> None:
    """Add which trial is meant, and when it stops."""
    parser.add_argument("--trial", type=values.count(0), metavar="N", help="one trial only")
    when = parser.add_mutually_exclusive_group()
    when.add_argument("--after-report", action="store_true", help="at the next report (default)")
    when.add_argument("--now", action="store_true", help="at once")


def stop_from(run: Run, options: argparse.Namespace) -> str:
    """Stop what the options name; returns what happens now, as a sentence without its full stop.

    Raises
    ------
    ControllerError
        No controller drives the run, or the one that does can't be asked.
    """
    if run.id not in live_runs():
        raise ControllerError(f"no controller drives run {run.id}: it is {run.state}")
    # The folds of one candidate report nothing that could be waited for.
    is_now = options.now or (options.trial is not None and isinstance(run.spec.verb, FitSpec))
    when = "at once" if is_now else "at the next report"
    if options.trial is None:
        run.cancel("now" if options.now else "next_report")
        return f"run {run.id} stops {when}"
    run.stop_trial(options.trial, "now" if options.now else "next_report")
    return f"trial {options.trial} of run {run.id} stops {when}"
