"""Tab on the first line of ``%%distribute``, and on lines of ``%cluster`` and ``%runs``.

Answers from the notebook and from files only; no controller is asked, so Tab never waits.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from IPython import get_ipython
from IPython.core.completer import SimpleCompletion, context_matcher

from jupyter_ddl.magics.face import commands_of

__all__ = ["complete", "offers"]

_MAGIC = re.compile(r"^\s*(%%?)(distribute|cluster|runs)\s+(.*)$", re.DOTALL)
_REPORT = re.compile(r"\breport\s*\(([^()]*(?:\([^()]*\)[^()]*)*)\)")
_KEYWORD = re.compile(r"\b([A-Za-z_]\w*)\s*=(?!=)")
_ASSIGNED = re.compile(r"^([A-Za-z_]\w*)\s*(?::[^=\n]+)?=(?!=)", re.MULTILINE)
_MAX_RUNS = 50


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
    if magic == "distribute":
        if percent == "%%" and cursor_line != 0:
            return ()
        from jupyter_ddl.verbs.base import distribute_grammar

        grammar = distribute_grammar()
    else:
        grammar = commands_of(magic)
    return grammar.offers(_words(rest), _sources(text, namespace))


def _words(rest: str) -> list[str]:
    """Complete words before the one at the cursor; ``--flag=x`` counts as two."""
    return re.split(r"\s+", re.sub(r"(--[\w-]+)=", r"\1 ", rest))[:-1]


def _sources(text: str, namespace: Mapping[str, Any]) -> dict[str, Callable[[], Iterable[str]]]:
    """What the grammar's declarations ask a notebook for."""

    def names(fits: Callable[[Any], bool]) -> Callable[[], Iterable[str]]:
        return lambda: [
            name for name, value in namespace.items() if _is_users(name) and fits(value)
        ]

    return {
        "metrics": lambda: _metrics(text),
        "assigned": lambda: _ASSIGNED.findall(text.partition("\n")[2]),
        "names": names(lambda _: True),
        "dicts": names(lambda value: isinstance(value, dict)),
        "sequences": names(_is_sequence),
        "samplers": names(lambda value: hasattr(value, "ask")),
        "runs": _run_words,
        "clusters": _cluster_names,
    }


def _metrics(text: str) -> set[str]:
    """Keywords of ``report(…)`` in the cell."""
    found = {name for call in _REPORT.findall(text) for name in _KEYWORD.findall(call)}
    return found - {"step"}


def _is_sequence(value: Any) -> bool:
    return hasattr(value, "__len__") and not isinstance(value, str | type)


def _is_users(name: str) -> bool:
    return not name.startswith("_") and name not in ("In", "Out", "exit", "quit", "get_ipython")


def _cluster_names() -> list[str]:
    from jupyter_ddl.store.connection import list_connections

    return [info.name for info in list_connections()]


def _run_words() -> list[str]:
    """Names and ids of the newest runs; names that would have to be quoted are left out."""
    from jupyter_ddl.client.run_names import read_lines
    from jupyter_ddl.store.paths import runs_dir

    ledgers = sorted(
        runs_dir().glob("*/ledger.ddl"), key=lambda path: path.stat().st_mtime, reverse=True
    )[:_MAX_RUNS]
    names = [line.name for line in read_lines(ledgers) if line.name == shlex.quote(line.name)]
    return ["last", *names, *(path.parent.name for path in ledgers)]
