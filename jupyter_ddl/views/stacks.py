"""Where the ranks of a hang stood: their stacks, with the source of the cells' lines."""

from __future__ import annotations

import re
from pathlib import Path

from jupyter_ddl.errors import TrialError
from jupyter_ddl.formats import format_counted
from jupyter_ddl.ledger.run_state import RunState
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.protocol.view_messages import GetStacks, RankStacks, StacksPart
from jupyter_ddl.views.drawing import plain_lines

__all__ = ["stacks_part"]

_N_RANKS = 8
_MAX_CHARACTERS = 7_000
"""Of one rank: of all shown ones together no more than an answer holds."""
_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in ')
_RANK = re.compile(r"rank-(\d+)\.txt")


def stacks_part(state: RunState, directory: Path, ask: GetStacks) -> StacksPart:
    """What the ranks of the latest hang have left, who is to blame first.

    Parameters
    ----------
    directory : Path
        The run's.

    Raises
    ------
    TrialError
        There was no hang, or its stacks are gone.
    """
    hang = state.group.hang
    if hang is None or not hang.stacks_file or state.spec is None:
        raise TrialError(f"run {ask.run_id} has no stacks of a hang", run_id=ask.run_id)
    found = {
        int(match[1]): path
        for path in (directory / hang.stacks_file).glob("rank-*.txt")
        if (match := _RANK.fullmatch(path.name))
    }
    if not found:
        raise TrialError(f"the stacks of run {ask.run_id} are not on this host any more")
    blamed = None if hang.is_outside else hang.rank
    ordered = sorted(found, key=lambda rank: (rank != blamed, rank))
    program = state.spec.program
    ranks = tuple(
        RankStacks(rank, rank == blamed, _told(found[rank], program)) for rank in ordered[:_N_RANKS]
    )
    return StacksPart(ask.id, ask.run_id, ranks, len(found))


def _told(path: Path, program: Program) -> str:
    """A rank's threads as they were written, the cell's first; each frame of it has its line."""
    try:
        with path.open(errors="replace") as file:
            text = file.read(64 * _MAX_CHARACTERS)
    except OSError as error:
        return f"{path.name} can't be read: {error.strerror}"
    sources = {program.filename: program.source, **program.sources}
    threads = [_with_source(thread, sources) for thread in text.strip("\n").split("\n\n")]
    threads.sort(key=lambda pair: -pair[1])
    kept = ""
    for number, (thread, _) in enumerate(threads):
        if kept and len(kept) + len(thread) > _MAX_CHARACTERS:
            kept += f"\n\n… {format_counted(len(threads) - number, 'thread')} left out …"
            break
        kept += f"\n\n{thread}"
    return plain_lines(kept, _MAX_CHARACTERS + 40)


def _with_source(thread: str, sources: dict[str, str]) -> tuple[str, int]:
    """The stacks of one thread, and how many frames of them are the cell's."""
    lines: list[str] = []
    n_own = 0
    for line in thread.splitlines():
        lines.append(line)
        frame = _FRAME.match(line)
        source = None if frame is None else sources.get(frame["file"])
        if frame is not None and source is not None:
            n_own += 1
            rows = source.splitlines()
            number = int(frame["line"])
            if 0 < number <= len(rows) and rows[number - 1].strip():
                lines.append(f"    {rows[number - 1].strip()}")
    return "\n".join(lines), n_own
