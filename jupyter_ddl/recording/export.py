"""``%runs export RUN FILE``: a run as a file of the form that the file's name asks for."""

from __future__ import annotations

from pathlib import Path

from jupyter_ddl.errors import RecordingError
from jupyter_ddl.formats import format_bytes, format_count
from jupyter_ddl.recording.page import save_page
from jupyter_ddl.recording.write import record_run, write_recording

__all__ = ["SUFFIXES", "export_run"]

SUFFIXES = (".jsonl", ".jsonl.gz", ".html")


def export_run(run_id: str, path: str | Path, *, overwrite: bool = False) -> str:
    """Write a run of this user as a recording, or as a page that plays it.

    Parameters
    ----------
    path : path
        Ends in ``.jsonl``, ``.jsonl.gz`` or ``.html``.
    overwrite : bool
        Whether a file that is there is replaced.

    Returns
    -------
    str
        One sentence that says what was written.

    Raises
    ------
    LedgerError
        There is no such run, or its ledger is damaged.
    RecordingError
        The name has another ending; the file is there, or can't be written.
    """
    path = Path(path).expanduser()
    if not path.name.endswith(SUFFIXES):
        raise RecordingError(
            f"writing {path} failed: its name ends in {path.suffix or 'nothing'!r}; expected "
            f"{', '.join(SUFFIXES)}",
            path=str(path),
        )
    recording = record_run(run_id)
    missing = recording.head.left_out
    note = f"; left out: {', '.join(missing)}" if missing else ""
    if path.suffix == ".html":
        n_bytes = save_page(recording, path, overwrite=overwrite)
        return f"A page that plays run {run_id} is in {path} ({format_bytes(n_bytes)}){note}."
    n_facts = write_recording(recording, path, overwrite=overwrite)
    return f"{format_count(n_facts)} facts of run {run_id} are in {path}{note}."
