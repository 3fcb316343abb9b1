"""The notebook's side: ``%cluster``, ``%%distribute`` and ``%runs``.

The only package that imports IPython.  Loading it imports no engine: what a command needs is
imported when the command runs.
"""

# IPython has no types, and so neither have its decorators.
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import sys
from typing import Any

from IPython.core.magic import (
    Magics,
    line_cell_magic,
    line_magic,
    magics_class,
    no_var_expand,
)

from jupyter_ddl.magics.completion import complete
from jupyter_ddl.magics.distribute import distribute
from jupyter_ddl.magics.face import carry_out
from jupyter_ddl.magics.kernel import before_cell, watch_kernel_end

__all__ = ["load"]

_NAMES = {"line": ("cluster", "distribute", "runs"), "cell": ("distribute",)}


@magics_class
class _DDLMagics(Magics):  # type: ignore[misc]  # IPython has no types
    """Thin: each magic is a function of the shell, its line and its cell."""

    @no_var_expand  # the body of a cell is Python's; the line is expanded by `expand_line`
    @line_cell_magic
    def distribute(self, line: str, cell: str | None = None) -> Any:
        """Run this cell as a search, a map, …: ``%distribute --help``."""
        __tracebackhide__ = True
        return distribute(self.shell, line, cell)

    @no_var_expand
    @line_magic
    def cluster(self, line: str) -> None:
        """Start, inspect and stop clusters: ``%cluster --help``."""
        carry_out(self.shell, "cluster", line)

    @no_var_expand
    @line_magic
    def runs(self, line: str) -> None:
        """List, inspect, watch and delete runs: ``%runs --help``."""
        carry_out(self.shell, "runs", line)


def load(ipython: Any) -> None:
    """Register magics, completion and the display of runs; nothing enters the namespace."""
    _warn_of_others(ipython)
    ipython.register_magics(_DDLMagics)
    watch_kernel_end(ipython)
    matchers = ipython.Completer.custom_matchers
    matchers[:] = [each for each in matchers if not _is_ours(each)] + [complete]
    _register_once(ipython)
    ipython.display_formatter.mimebundle_formatter.for_type_by_name(
        "jupyter_ddl.client.run", "Run", _run_bundle
    )


def _register_once(ipython: Any) -> None:
    """Have cells with plain Dask code find the cluster, however often this is loaded."""
    callbacks = ipython.events.callbacks["pre_run_cell"]
    if before_cell not in callbacks:
        ipython.events.register("pre_run_cell", before_cell)


def _warn_of_others(ipython: Any) -> None:
    """One line when another extension had these names: its magics are replaced."""
    taken = []
    for kind, names in _NAMES.items():
        registered = ipython.magics_manager.magics[kind]
        percent = "%" if kind == "line" else "%%"
        taken += [
            (f"{percent}{name}", registered[name])
            for name in names
            if name in registered and not _is_ours(registered[name])
        ]
    if taken:
        magics = ", ".join(name for name, _ in taken)
        owners = ", ".join(sorted({_module(function) for _, function in taken}))
        sys.stderr.write(f"jupyter_ddl replaces {magics} of {owners}.\n")


def _is_ours(function: Any) -> bool:
    return _module(function).startswith("jupyter_ddl")


def _module(function: Any) -> str:
    owner = getattr(function, "__self__", None)
    return str(getattr(function, "__module__", "") if owner is None else type(owner).__module__)


def _run_bundle(run: Any, **_: Any) -> dict[str, str]:
    """A run at the end of a cell: its view as it is now; IPython filters the types."""
    import time

    from jupyter_ddl.views.html import render_html
    from jupyter_ddl.views.text import render_text

    snapshot, now_s = run.snapshot(), time.time()
    return {
        "text/html": render_html(snapshot, now_s=now_s, live=False),
        "text/plain": render_text(snapshot, now_s),
    }
