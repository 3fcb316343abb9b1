"""The folder that a rank works in, and what trials do to one another there."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from jupyter_ddl.errors import LaunchError
from jupyter_ddl.protocol.folder import WorkFolder, data_stamp, is_data_stamp
from jupyter_ddl.protocol.program import ModuleFile
from jupyter_ddl.ranks.payload import host_name
from jupyter_ddl.store.blobs import BlobMissingError, digest_of, find_blob

__all__ = ["WriteWatch", "coming_back", "enter_folder", "hint_for"]

_MISSING = FileNotFoundError | NotADirectoryError
_entered = WorkFolder()


def enter_folder(
    folder: WorkFolder, data: Iterable[ModuleFile] = (), blob_dirs: Iterable[Path] = ()
) -> None:
    """Make a folder the process's working directory.

    Parameters
    ----------
    data
        Files beside the notebook that are to be in a folder of the run's own.

    Raises
    ------
    LaunchError
        It is not there, or must not be entered.
    BlobMissingError
        The content of a file is not on this host.
    """
    global _entered
    if not folder.path:
        return
    try:
        if folder.is_own:
            Path(folder.path).mkdir(mode=0o700, parents=True, exist_ok=True)
        os.chdir(folder.path)
    except OSError as error:
        raise LaunchError(
            f"the folder {folder.path}, which the cell was run from, can't be entered on host "
            f"{host_name()} ({error.strerror}); make it again, or run the cell from another folder",
            path=folder.path,
        ) from None
    _entered = folder
    if folder.is_own:
        for file in data:
            _put(file, Path(folder.path), tuple(blob_dirs))


def _put(file: ModuleFile, folder: Path, blob_dirs: tuple[Path, ...]) -> None:
    """Make a data file be there as it was beside the notebook, unless a rank has changed it."""
    target = folder / file.path
    stamp = data_stamp(file.digest)
    with contextlib.suppress(FileNotFoundError):
        changed_at_s = target.stat().st_mtime
        if changed_at_s == stamp or not is_data_stamp(changed_at_s):
            return
    source = find_blob(file.digest, blob_dirs)
    if source is None:
        raise BlobMissingError(file.digest)
    target.parent.mkdir(parents=True, exist_ok=True)
    # Ranks of a host share the folder, and may do this side by side.
    partial = target.with_name(f".partial-{os.getpid()}-{target.name}")
    shutil.copyfile(source, partial)
    os.utime(partial, (stamp, stamp))
    partial.replace(target)


@contextlib.contextmanager
def coming_back() -> Iterator[None]:
    """Behind this, the process is in the folder that it was in before."""
    before = os.getcwd()  # noqa: PTH109 - as fast as can be
    try:
        yield
    finally:
        os.chdir(before)


def hint_for(error: BaseException) -> str:
    """Where a file of a relative name was looked for, and the way out; empty for other errors."""
    name = getattr(error, "filename", None)
    if not isinstance(error, _MISSING | PermissionError) or not isinstance(name, str):
        return ""
    if not name or name.startswith("/"):
        return ""
    try:
        here = os.getcwd()  # noqa: PTH109 - it may be gone
    except FileNotFoundError:
        return "; the folder that this rank works in was removed"
    if isinstance(error, PermissionError):
        return f"; {here} is where this rank works: `%cd` to a folder that you may write"
    if _entered.is_own:
        return (
            f"; looked for in {here} on host {host_name()}, which does not see the notebook's "
            f"files: those that the cell names by a plain string travel with it, and "
            f"`--push` sends values"
        )
    return f"; looked for in {here}, where this rank works: put it there, or `%cd` to its folder"


# -- trials that write the same file ---------------------------------------------------------------

_written: set[str] | None = None
"""Absolute paths of files that are opened for writing by relative names; None: nobody looks."""
_shared: set[str] = set()
"""Those of databases, which processes may share."""
_is_hooked = False

_State = tuple[int, int, int]


class WriteWatch:
    """Tells once when two trials of a run write the same file by a relative name.

    What Python opens is known exactly.  Of what is written in C (by h5py, safetensors, torch),
    Python hears nothing: files that the cell names are looked at before and after each trial.  The
    first trial to write a file leaves its number in the run's directory.

    Parameters
    ----------
    run_dir : Path
        Shared by all ranks of a host.
    names
        Strings of the cell that may be relative names of files, or of folders they are in.
    """

    def __init__(self, run_dir: Path, names: Iterable[str] = ()) -> None:
        self._directory = run_dir / "written"
        self._has_told = False
        self._names: list[str] = []
        self._folders: list[str] = []
        for name in names:
            (self._names if Path(name).suffix else self._folders).append(name)
        self._here = ""
        self._before: dict[str, _State] = {}

    def begin(self) -> None:
        """Look from now on."""
        global _written
        if self._has_told:
            return
        _hook()
        if self._names:
            self._here = os.getcwd()  # noqa: PTH109 - as fast as can be
            self._before = self._states()
        _written = set()

    def end(self, trial: int) -> str:
        """What is to be told of a trial that has ended; empty: nothing."""
        global _written
        paths, _written = _written, None
        if self._has_told:
            return ""
        paths = paths or set()
        for path in sorted(paths):
            other = self._claim(path, str(trial))
            if other != str(trial):
                return self._told(
                    path, f"trials {other} and {trial} have both written {{name}} in {{folder}}: "
                )
        for path, state in self._states().items():
            if state == self._before.get(path) or path in paths or path in _shared:
                continue
            if self._mark(path).exists():  # it is known who has
                continue
            # One change that two trials see is one trial's.
            other, _, changed = self._claim(f"{path}\0", f"{trial} {state[0]}").partition(" ")
            if other != str(trial) and changed != str(state[0]):
                return self._told(
                    path,
                    f"{{name}} in {{folder}}, which the cell names, has changed during trials "
                    f"{other} and {trial}: if both write it, ",
                )
        return ""

    def _states(self) -> dict[str, _State]:
        """The files of these names that there are, and what tells that one was written."""
        if not self._names:
            return {}
        below = (os.path.join(self._here, folder) for folder in self._folders)
        paths = (
            os.path.join(folder, name)
            for folder in (self._here, *filter(os.path.isdir, below))
            for name in self._names
        )
        found = {}
        for path in paths:
            with contextlib.suppress(OSError):
                seen = os.stat(path)  # noqa: PTH116 - as above
                if stat.S_ISREG(seen.st_mode):
                    found[path] = seen.st_mtime_ns, seen.st_ino, seen.st_size
        return found

    def _mark(self, path: str) -> Path:
        return self._directory / digest_of(path.encode())

    def _claim(self, path: str, text: str) -> str:
        """What the trial has left that has written a file first."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        mark = self._mark(path)
        with contextlib.suppress(FileExistsError):
            _create(mark, text.encode())
            return text
        return mark.read_text() or text  # it is being written: the next one tells

    def _told(self, path: str, what: str) -> str:
        self._has_told = True
        try:
            _create(self._directory / "told", b"")
        except FileExistsError:
            return ""
        folder, name = os.path.split(path)
        return what.format(name=name, folder=folder) + (
            "what is there in the end is the last writer's; give each trial a name of its own for "
            "it, or use checkpoint(…) and --bring"
        )


def _create(path: Path, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(data)


def _hook() -> None:
    """Hear of files that are opened: a hook can't be taken off again, so there is one."""
    global _is_hooked
    if not _is_hooked:
        sys.addaudithook(_on_audit)
        _is_hooked = True


def _on_audit(event: str, args: tuple[Any, ...]) -> None:
    # Called for each of torch's thousands of events: the commonest answer comes first.
    if event == "open" and _written is not None and args[2] & os.O_ACCMODE:
        _note(args[0], _written)
    elif event == "sqlite3.connect":
        _note(args[0], _shared)


def _note(path: object, paths: set[str]) -> None:
    if type(path) is str and not path.startswith("/"):
        with contextlib.suppress(OSError):
            paths.add(os.path.abspath(path))  # noqa: PTH100 - a Path would cost more than the rest
