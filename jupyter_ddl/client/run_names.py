"""Which run is meant: by its id, the beginning of one, its name, or ``last``."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from jupyter_ddl.client.elsewhere import join_elsewhere
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


def find_run(
    text: str,
    on_notice: Callable[[str], None] = log.warning,
    on_phase: Callable[[str], None] = log.info,
) -> str:
    """The id of the run that ``text`` means.

    Where no run here is meant, this user's clusters that run elsewhere are asked for theirs.

    Parameters
    ----------
    text : str
        A whole id, ``last``, a name, or a unique beginning of an id, in this order.
    on_notice : callable
        Gets a line where several runs have the name: the newest of them is meant.
    on_phase : callable
        Gets a line for each cluster that is asked.

    Raises
    ------
    RunNotFoundError
        No run, or several, are meant; the message has the nearest id or name.
    """
    found = _find(text, on_notice)
    if found is not None:
        return found
    troubles = join_elsewhere(on_phase, anew=True) if text else []
    found = _find(text, on_notice)
    if found is not None:
        return found
    lines = read_lines()
    known = [line.name for line in lines if line.name] + [line.run_id for line in lines]
    hint = did_you_mean(text, known) or "; `%runs` lists them"
    raise RunNotFoundError("; ".join((f"there is no run {text!r}{hint}", *troubles)), run_id=text)


def _find(text: str, on_notice: Callable[[str], None]) -> str | None:
    """The id of the run of this host that is meant; None: there is no such run."""
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


def _by_beginning(text: str, lines: Sequence[RunLine]) -> str | None:
    meant = sorted(line.run_id for line in lines if text and line.run_id.startswith(text))
    if len(meant) <= 1:
        return meant[0] if meant else None
    rest = len(meant) - _N_TOLD
    more = f" and {rest} more" if rest > 0 else ""
    raise RunNotFoundError(f"{text!r} may mean {', '.join(meant[:_N_TOLD])}{more}; type more of it")


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
