"""``%cluster env [check|sync]``: what cells run in, whether workers have it, and giving it them."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from IPython.core.getipython import get_ipython
from IPython.display import display

from jupyter_ddl.magics.cell_output import Phases, say
from jupyter_ddl.magics.notebook import notebook_path

__all__ = ["environment", "refresh_verdict"]


def environment(options: Namespace) -> None:
    """Carry out one ``%cluster env`` line."""
    from jupyter_ddl.client.commands import chosen_cluster

    if options.action == "show":
        _show()
    elif options.action == "check":
        _check(chosen_cluster().name)
    else:
        _sync(chosen_cluster().name, options)


def refresh_verdict(cluster: str) -> None:
    """Compare anew, and let the cluster know; one that does not answer keeps what it knows."""
    from jupyter_ddl.client.environment import compare_with, status_of, tell
    from jupyter_ddl.environment.kernel import kernel_environment
    from jupyter_ddl.errors import ClusterError

    try:
        scope = kernel_environment().scope(_imports())
        tell(cluster, status_of(compare_with(cluster, scope, _folder()).verdict))
    except ClusterError:
        return


def _show() -> None:
    from jupyter_ddl.environment.binder import has_configuration, read_configuration
    from jupyter_ddl.environment.kernel import kernel_environment
    from jupyter_ddl.views.environment import render_environment

    folder = _folder()
    asked = read_configuration(folder) if has_configuration(folder) else None
    kernel = kernel_environment()
    used = sorted(kernel.scope(_imports()).direct)
    display(render_environment(asked, kernel.facts(), used))


def _check(cluster: str) -> None:
    from jupyter_ddl.client.environment import compare_with, status_of, tell
    from jupyter_ddl.environment.kernel import kernel_environment
    from jupyter_ddl.views.environment import render_verdict

    # Judged as a cell would be that uses all that the notebook does.
    checked = compare_with(cluster, kernel_environment().scope(_imports()), _folder())
    tell(cluster, status_of(checked.verdict))
    display(render_verdict(checked.verdict, checked.notes))


def _sync(cluster: str, options: Namespace) -> None:
    from jupyter_ddl.client.sync import sync_environment, synced_lines

    with Phases() as phases:
        synced = sync_environment(
            cluster,
            imports=() if options.packages else _imports(),
            packages=options.packages,
            everything=options.all,
            on_phase=phases,
        )
        phases.done("done")
    for line in synced_lines(synced):
        say(line)
    refresh_verdict(cluster)


def _imports() -> frozenset[str]:
    """What the notebook and the cells that were sent so far use."""
    from jupyter_ddl.client.environment import last_imports
    from jupyter_ddl.environment.kernel import modules_in

    return modules_in(_namespace()) | last_imports()


def _folder() -> Path:
    from jupyter_ddl.client.environment import folder_of

    return folder_of(notebook_path(dict(_namespace())))


def _namespace() -> Mapping[str, Any]:
    shell = get_ipython()
    return {} if shell is None else shell.user_ns
