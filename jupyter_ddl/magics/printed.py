"""What rank 0 of a training has printed, below the view of a cell that has ended."""

from __future__ import annotations

from pathlib import Path

from jupyter_ddl.protocol.snapshot import RunSnapshot

__all__ = ["printed_text"]

_MAX_LINES = 20
_MAX_BYTES = 8_000


def printed_text(directory: Path, last: RunSnapshot, name: str) -> str:
    """The last lines of rank 0's last round, as `%%distribute run` shows them; may be empty.

    A cell that prints when it is executed plainly does so as a training, too.

    Parameters
    ----------
    directory : Path
        The run's.
    name : str
        What the notebook calls the run.
    """
    from jupyter_ddl.views.rank_output import render_rank_output

    # By the process: to fold all events of a long training would take seconds.
    pids = [row.pid for row in last.ranks if row.rank == 0]
    paths = [path for pid in pids for path in (directory / "logs").glob(f"*-{pid}.log")]
    if not paths:
        return ""
    text, is_cut = _end(paths[-1])
    shown = render_rank_output({0: text}, {})
    return f"… `{name}.logs(0)` has what is before this:\n{shown}" if is_cut else shown


def _end(path: Path) -> tuple[str, bool]:
    """The end of a file, and whether something is before it."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - _MAX_BYTES))
        lines = file.read().decode(errors="replace").rstrip("\n").split("\n")
    if size > _MAX_BYTES and len(lines) > 1:
        del lines[0]  # it begins somewhere in a line
    return "\n".join(lines[-_MAX_LINES:]), size > _MAX_BYTES or len(lines) > _MAX_LINES
