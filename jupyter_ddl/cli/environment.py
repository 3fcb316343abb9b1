"""``jupyter ddl env``: the environment of this Python and of a cluster's workers."""

from __future__ import annotations

import shutil
import sys
from argparse import Namespace
from pathlib import Path

__all__ = ["environment"]


def environment(options: Namespace) -> int:
    """Carry out the command; the status of ``check`` is 1 unless the environments are the same."""
    from jupyter_ddl.client.commands import chosen_cluster

    if options.action == "show":
        return _show()
    if options.action == "check":
        return _check(chosen_cluster().name)
    return _sync(chosen_cluster().name, options)


def _show() -> int:
    from jupyter_ddl.environment.binder import has_configuration, read_configuration
    from jupyter_ddl.environment.kernel import kernel_environment
    from jupyter_ddl.views.environment import render_environment

    folder = Path.cwd()
    asked = read_configuration(folder) if has_configuration(folder) else None
    _say(repr(render_environment(asked, kernel_environment().facts(), (), width=_width())))
    return 0


def _check(cluster: str) -> int:
    from jupyter_ddl.client.environment import compare_with
    from jupyter_ddl.views.environment import render_verdict

    checked = compare_with(cluster, None, Path.cwd())
    _say(repr(render_verdict(checked.verdict, checked.notes, width=_width())))
    return 0 if checked.verdict.word == "same" else 1


def _sync(cluster: str, options: Namespace) -> int:
    from jupyter_ddl.client.sync import sync_environment, synced_lines
    from jupyter_ddl.errors import OptionError

    if not options.packages and not options.all:
        raise OptionError("env sync: give packages, or --all; a notebook knows what it uses itself")
    synced = sync_environment(
        cluster,
        packages=options.packages,
        everything=options.all,
        on_phase=lambda phase: _say(f"{phase} …"),
    )
    for line in synced_lines(synced):
        _say(line)
    return 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _width() -> int:
    return shutil.get_terminal_size((100, 24)).columns - 1
