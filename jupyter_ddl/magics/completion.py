"""Tab on the first line of ``%%distribute``, and on lines of ``%cluster`` and ``%runs``.

Answers from the notebook and from files only; no controller is asked, so Tab never waits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from IPython import get_ipython
from IPython.core.completer import SimpleCompletion, context_matcher

from jupyter_ddl.cell.options import VERBS, choices, option_flags

__all__ = ["complete", "offers"]

_MAGIC = re.compile(r"^\s*(%%?)(distribute|cluster|runs)\s+(.*)$", re.DOTALL)
_REPORT = re.compile(r"\breport\s*\(([^()]*(?:\([^()]*\)[^()]*)*)\)")
_KEYWORD = re.compile(r"\b([A-Za-z_]\w*)\s*=(?!=)")
_MAX_RUNS = 50
_NOTEBOOK_VALUES = ("--space", "--over", "--bring", "--push", "--sampler")


@context_matcher(identifier="jupyter_ddl")  # type: ignore[untyped-decorator]  # IPython has no types
def complete(context: Any) -> dict[str, Any]:
    """The matcher that IPython calls for every Tab; silent outside our lines."""
    shell = get_ipython()
    namespace = {} if shell is None else shell.user_ns
    found = offers(context.full_text, context.cursor_line, context.text_until_cursor, namespace)
    fitting = sorted({each for each in found if each.startswith(context.token)})
    completions = [SimpleCompletion(text=each, type="magic option") for each in fitting]
    return {"completions": completions, "suppress": bool(completions)}


def offers(text: str, cursor_line: int, before: str, namespace: dict[str, Any]) -> Iterable[str]:
    """What could stand at the cursor.

    Parameters
    ----------
    text : str
        The whole cell.
    before : str
        The cursor's line up to the cursor.
    namespace : dict
        The notebook's names.
    """
    match = _MAGIC.match(before)
    if match is None:
        return ()
    percent, magic, rest = match.groups()
    words = _split(rest)[:-1]
    if magic == "distribute":
        if percent == "%%" and cursor_line != 0:
            return ()
        return _for_distribute(words, text, namespace)
    return _for_cluster(words) if magic == "cluster" else _for_runs(words)


def _split(rest: str) -> list[str]:
    """Words so far and the one at the cursor (maybe empty); ``--flag=x`` counts as two."""
    return re.split(r"\s+", re.sub(r"(--[\w-]+)=", r"\1 ", rest))


def _for_distribute(words: list[str], text: str, namespace: dict[str, Any]) -> Iterable[str]:
    if not words:
        return (*VERBS, "--help")
    verb, flag = words[0], words[-1]
    fixed = choices(verb, flag)
    if flag == "--metric":
        return _metrics(text)
    if flag == "--resume":
        return _run_ids()
    if flag in _NOTEBOOK_VALUES:
        return (*fixed, *_names_for(flag, text, namespace))
    return fixed or option_flags(verb)


def _metrics(text: str) -> set[str]:
    """Keywords of ``report(…)`` in the cell."""
    found = {name for call in _REPORT.findall(text) for name in _KEYWORD.findall(call)}
    return found - {"step"}


def _names_for(flag: str, text: str, namespace: dict[str, Any]) -> set[str]:
    if flag == "--bring":
        body = text.partition("\n")[2]
        return set(re.findall(r"^([A-Za-z_]\w*)\s*(?::[^=\n]+)?=(?!=)", body, re.MULTILINE))
    kinds: dict[str, Any] = {
        "--space": lambda value: isinstance(value, dict),
        "--over": lambda value: hasattr(value, "__len__") and not isinstance(value, str | type),
        "--push": lambda _: True,
        "--sampler": lambda value: hasattr(value, "ask"),
    }
    fits = kinds[flag]
    return {name for name, value in namespace.items() if _is_users(name) and fits(value)}


def _is_users(name: str) -> bool:
    return not name.startswith("_") and name not in ("In", "Out", "exit", "quit", "get_ipython")


def _for_cluster(words: list[str]) -> Iterable[str]:
    from jupyter_ddl.client.commands import CLUSTER_GRAMMAR

    if not words:
        return (*CLUSTER_GRAMMAR.commands, "--help")
    command = words[0]
    if command == "start":
        return (*_backends(words), *CLUSTER_GRAMMAR.flags("start"))
    if command == "env":
        return (*(() if len(words) > 1 else ("check", "sync")), *CLUSTER_GRAMMAR.flags("env"))
    names = _cluster_names() if command in ("attach", "stop") else ()
    return (*names, *CLUSTER_GRAMMAR.flags(command))


def _backends(words: list[str]) -> Iterable[str]:
    from jupyter_ddl.backends.registry import backend_names

    return backend_names() if len(words) == 1 else ()


def _for_runs(words: list[str]) -> Iterable[str]:
    from jupyter_ddl.client.commands import RUNS_GRAMMAR

    if not words:
        return (*RUNS_GRAMMAR.commands, "--help")
    command = words[0]
    ids = () if command in ("list", "replay") else ("last", *_run_ids())
    return (*ids, *RUNS_GRAMMAR.flags(command))


def _cluster_names() -> list[str]:
    from jupyter_ddl.store.connection import list_connections

    return [info.name for info in list_connections()]


def _run_ids() -> list[str]:
    from jupyter_ddl.store.paths import runs_dir

    ledgers = sorted(
        runs_dir().glob("*/ledger.ddl"), key=lambda path: path.stat().st_mtime, reverse=True
    )
    return [path.parent.name for path in ledgers[:_MAX_RUNS]]
