"""Whether the objective of a search is ever reported, by the cell or what it calls."""

from __future__ import annotations

import ast
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from jupyter_ddl.cell.names import CellNames
from jupyter_ddl.cell.source import CellSource
from jupyter_ddl.errors import CellError
from jupyter_ddl.nearest import did_you_mean

__all__ = ["Reports", "choose_metric", "reports_in"]


@dataclass(frozen=True, slots=True)
class Reports:
    """What ``report`` is called with.

    Attributes
    ----------
    metrics : tuple of str
        Keywords, in the order of the text.
    open : bool
        ``report(**metrics)``, or ``report`` handed on: more names are possible.
    """

    metrics: tuple[str, ...] = ()
    open: bool = False


def reports_in(
    tree: ast.Module,
    namespace: Mapping[str, Any],
    functions: Iterable[types.FunctionType] = (),
    modules: Iterable[ast.Module] = (),
) -> Reports:
    """Metrics that a cell may report.

    Parameters
    ----------
    tree
        The cell.
    namespace
        The notebook, for aliases of ``report``.
    functions
        Notebook functions that travel with the cell.
    modules
        Files that travel with the cell.
    """
    metrics: dict[str, None] = {}
    is_open = False
    for each in (tree, *modules):
        found = _reports_of(each, namespace if each is tree else {})
        metrics |= dict.fromkeys(found.metrics)
        is_open = is_open or found.open
    for function in functions:
        # Keyword names of calls are constants of the code; which call they belong to is not kept.
        is_open = is_open or _uses_report(function.__code__)
    return Reports(tuple(metrics), is_open)


def choose_metric(
    wanted: str | None, reports: Reports, names: CellNames, source: CellSource
) -> str:
    """The metric of a search.

    Parameters
    ----------
    wanted
        ``--metric``; None takes the only one that the cell reports.

    Raises
    ------
    CellError
        It is never reported or assigned, or ``wanted`` is None and there is not exactly one.
    """
    seen = ", ".join(reports.metrics)
    if wanted is None:
        if len(reports.metrics) == 1 and not reports.open:
            return reports.metrics[0]
        hint = f"the cell reports {seen}" if seen else "e.g. report(step=…, val_acc=acc)"
        raise CellError(f"a search needs --metric NAME, which to judge trials by; {hint}")
    if wanted in reports.metrics or wanted in names.bound or reports.open:
        return wanted
    hint = did_you_mean(wanted, (*reports.metrics, *names.bound))
    raise CellError(
        f"metric {wanted!r} is never reported or assigned in {source.filename}; names seen: "
        f"{seen or 'no report(…) at all'}{hint}",
        metric=wanted,
    )


def _reports_of(tree: ast.Module, namespace: Mapping[str, Any]) -> Reports:
    metrics: dict[str, None] = {}
    is_open = False
    called: set[int] = set()
    aliases = {"report", *_aliases(tree, namespace)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _is_report(node.func, aliases):
            called.add(id(node.func))
            for keyword in node.keywords:
                if keyword.arg is None:
                    is_open = True
                elif keyword.arg != "step":
                    metrics[keyword.arg] = None
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and id(node) not in called:
            loaded = isinstance(node.ctx, ast.Load)
            is_open = is_open or (loaded and _is_report(node, aliases))
    return Reports(tuple(metrics), is_open)


def _is_report(function: ast.expr, aliases: set[str]) -> bool:
    if isinstance(function, ast.Attribute):
        return function.attr == "report" and isinstance(function.value, ast.Name)
    return isinstance(function, ast.Name) and function.id in aliases


def _aliases(tree: ast.Module, namespace: Mapping[str, Any]) -> set[str]:
    found = {
        alias.asname
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("jupyter_ddl")
        for alias in node.names
        if alias.name == "report" and alias.asname
    }
    for name, value in namespace.items():
        module = getattr(value, "__module__", None)
        ours = isinstance(module, str) and module.startswith("jupyter_ddl")
        if ours and getattr(value, "__name__", None) == "report":
            found.add(name)
    return found


def _uses_report(code: types.CodeType) -> bool:
    if "report" in code.co_names:
        return True
    return any(_uses_report(part) for part in code.co_consts if isinstance(part, types.CodeType))
