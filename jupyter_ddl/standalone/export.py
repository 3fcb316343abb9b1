"""``%runs export RUN FILE --as KIND``: writes a run as a program, or as what starts one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from jupyter_ddl.environment.image_choice import choose_env, parse_reference
from jupyter_ddl.errors import ImageError, OptionError
from jupyter_ddl.formats import format_bytes
from jupyter_ddl.ledger.reader import read_ledger
from jupyter_ddl.ledger.reducer import fold_all
from jupyter_ddl.ledger.run_state import RunState
from jupyter_ddl.protocol.assignment import derive_seed
from jupyter_ddl.protocol.reading import from_json
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.standalone.forms import ProgramForm, program_form
from jupyter_ddl.standalone.script import (
    ChosenTrial,
    Script,
    check_exportable,
    folder_line,
    refused,
    write_script,
)
from jupyter_ddl.standalone.unpacking import FILES, FOUND, Found
from jupyter_ddl.store.atomic import write_whole
from jupyter_ddl.store.paths import ledger_path

__all__ = ["export_program"]

_UNPACKING_S = 600.0
_TAIL = 300


def export_program(
    run_id: str,
    path: str | Path,
    kind: str,
    *,
    image: str = "",
    overwrite: bool = False,
    environ: Mapping[str, str] = os.environ,
) -> str:
    """Write a run of this user as a program of its own.

    Parameters
    ----------
    kind : str
        ``script``, or what starts it elsewhere: see :data:`jupyter_ddl.plugins.FORMS`.
    image : str
        What it runs in elsewhere; empty: the image of the run's workers, or the notebook's.
    overwrite : bool
        Whether what is there is replaced.

    Returns
    -------
    str
        What was written, and what who runs it should know.

    Raises
    ------
    LedgerError
        There is no such run, or its ledger is damaged.
    OptionError
        The run is no program of this kind, or the file is there or has another ending.
    CaptureError
        The cell has a value of the notebook that no plain file holds.
    ImageError
        No image is known.
    """
    path = Path(path).expanduser()
    form = program_form(kind)
    data = path.with_name(f"{path.stem}_data")
    _check_target(path, form, data, overwrite=overwrite)
    state = fold_all(read_ledger(ledger_path(run_id)))
    spec = state.spec
    if spec is None:
        raise OptionError(f"run {run_id} has no first record; `%runs rm {run_id}`")
    check_exportable(spec)
    form.check(spec)
    chosen = _chosen_trial(spec, state)
    picture = _image(spec, kind, image, environ) if form.wants_image else ""
    try:
        temporary = tempfile.TemporaryDirectory(prefix=".export-", dir=path.parent)
    except OSError as error:
        raise _not_written(path, error) from None
    with temporary as made:
        folder = Path(made)
        found = _unpacked(run_id, folder)
        files = folder / FILES
        is_used = files.is_dir() and any(files.iterdir())
        script = write_script(
            spec, chosen, found, folder=data.name if is_used else "", name=f"{path.stem}.py"
        )
        text = form.text(script, files, picture)
        _put(path, text, None if form.is_alone or not is_used else files, data)
    return _answer(script, form, path, data, is_used=is_used)


def _check_target(path: Path, form: ProgramForm, data: Path, *, overwrite: bool) -> None:
    start = f"%runs export {path}"
    if not path.name.endswith(form.suffixes):
        raise OptionError(
            f"{start}: the name ends in {path.suffix or 'nothing'!r}; expected "
            f"{' or '.join(form.suffixes)}"
        )
    if not path.parent.is_dir():
        raise OptionError(f"{start}: there is no folder {path.parent}; make it first")
    if path.is_dir():
        raise OptionError(f"{start}: it is a directory; give the name of a file")
    if path.exists() and not overwrite:
        raise OptionError(f"{start}: {path} exists already; give another name, or --overwrite")
    if not form.is_alone and os.path.lexists(data) and not _is_of(data, path):
        raise OptionError(
            f"{start}: {data} is there, where the program's files would go, and no program in "
            f"{path.name} has written it; give another name"
        )


def _is_of(data: Path, path: Path) -> bool:
    """Whether a folder is that of the program beside it: no other one is ever deleted."""
    if data.is_symlink() or not data.is_dir() or not path.is_file():
        return False
    return folder_line(data.name).encode() in path.read_bytes()


def _chosen_trial(spec: RunSpec, state: RunState) -> ChosenTrial:
    if spec.verb.items is not None:
        return ChosenTrial(0, {}, spec.seed)
    if spec.verb.study is None:
        return ChosenTrial(0, {}, derive_seed(spec.seed, 0))
    if state.best is None:
        raise OptionError(refused(spec, "it has no complete trial, whose values it would have"))
    best = state.best
    return ChosenTrial(best.number, best.params, derive_seed(spec.seed, best.number))


def _image(spec: RunSpec, kind: str, given: str, environ: Mapping[str, str]) -> str:
    """The image: as given, of the run's workers, or of the notebook."""
    if given:
        return str(parse_reference(given))
    if spec.provenance.image:
        return spec.provenance.image
    try:
        return str(choose_env("auto", environ, Path()).image)
    except ImageError:
        raise OptionError(
            f"%runs export --as {kind}: run {spec.run_id} was in no image, and this notebook's is "
            f"not known; give one with the cell's packages by --image IMAGE"
        ) from None


def _unpacked(run_id: str, folder: Path) -> Found:
    command = [sys.executable, "-P", "-m", "jupyter_ddl.standalone.unpacking", run_id, str(folder)]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_UNPACKING_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Found(error=f"it took longer than {_UNPACKING_S:g} s")
    try:
        return from_json((folder / FOUND).read_bytes(), Found)
    except FileNotFoundError:
        said = " ".join((done.stdout + done.stderr).split())[-_TAIL:]
        return Found(error=f"it ended with status {done.returncode}: {said}")


def _put(path: Path, text: str, files: Path | None, data: Path) -> None:
    """The folder first: a program is never there without it."""
    try:
        if files is not None:
            if data.exists():
                shutil.rmtree(data)
            files.rename(data)
        write_whole(path, text.encode(), mode=0o666)
    except OSError as error:
        raise _not_written(path, error) from None


def _not_written(path: Path, error: OSError) -> OptionError:
    return OptionError(f"%runs export {path}: {error.strerror}; give a place that you can write to")


def _answer(script: Script, form: ProgramForm, path: Path, data: Path, *, is_used: bool) -> str:
    beside = ""
    if is_used and not form.is_alone:
        size = sum(each.stat().st_size for each in data.rglob("*") if each.is_file())
        beside = f", with {data.name} beside it ({format_bytes(size)})"
    notes = "".join(f"; {each}" for each in (*script.notes, *form.notes(script)))
    return f"Run {script.spec.run_id} is in {path}{beside}{notes}."
