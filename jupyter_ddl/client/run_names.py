"""Which run is meant: by its id, the beginning of one, its name, or ``last``."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from jupyter_ddl.errors import JupyterDDLError, RunNotFoundError
from jupyter_ddl.ledger.reader import read_damaged_line, read_run_line
from jupyter_ddl.nearest import did_you_mean
from jupyter_ddl.protocol.names import is_file_name
from jupyter_ddl.protocol.snapshot import RunLine
from jupyter_ddl.store.paths import ledger_path, runs_dir

__all__ = ["find_run", "read_lines"]

log = logging.getLogger(__name__)

_LAST = "last"
_N_TOLD = 5


def find_run(text: str, on_notice: Callable[[str], None] = log.warning) -> str:
    """The id of the run that ``text`` means.

    Parameters
    ----------
    text : str
        A whole id, ``last``, a name, or a unique beginning of an id, in this order.
    on_notice : callable
        Gets a line where several runs have the name: the newest of them is meant.

    Raises
    ------
    RunNotFoundError
        No run, or several, are meant; the message has the nearest id or name.
    """
    if is_file_name(text) and ledger_path(text).exists():
        return text
    lines = read_lines()
    if text == _LAST and lines:
        return lines[0].run_id
    named = [line.run_id for line in lines if text and line.name == text]
    if named:
        if len(named) > 1:
            on_notice(f"{len(named)} runs are named {text!r}: {named[0]}, the newest, is meant")
        return named[0]
    return _by_beginning(text, lines)


def _by_beginning(text: str, lines: Sequence[RunLine]) -> str:
    ids = [line.run_id for line in lines]
    meant = sorted(run_id for run_id in ids if text and run_id.startswith(text))
    if len(meant) == 1:
        return meant[0]
    if meant:
        rest = len(meant) - _N_TOLD
        more = f" and {rest} more" if rest > 0 else ""
        raise RunNotFoundError(
            f"{text!r} may mean {', '.join(meant[:_N_TOLD])}{more}; type more of it"
        )
    names = [line.name for line in lines if line.name]
    hint = did_you_mean(text, [*names, *ids]) or "; `%runs` lists them"
    raise RunNotFoundError(f"there is no run {text!r}{hint}", run_id=text)


def read_lines(ledgers: Iterable[Path] | None = None) -> list[RunLine]:
    """What lists show of runs on disk (all), newest first; damaged ones are marked as such."""
    found = []
    paths = (folder / "ledger.ddl" for folder in runs_dir().iterdir())
    for path in paths if ledgers is None else ledgers:
        try:
            found.append(read_run_line(path))
        except JupyterDDLError:
            damaged = read_damaged_line(path)
            if damaged is not None:  # else it is being created
                found.append(damaged)
    return sorted(found, key=lambda line: -line.created_at_s)
