"""Files that the ranks of a run have written where the notebook does not see them."""

from __future__ import annotations

import shutil
from collections.abc import Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import overload

from jupyter_ddl.client.copies import files_there, here
from jupyter_ddl.client.session import session
from jupyter_ddl.errors import JupyterDDLError, TrialError
from jupyter_ddl.formats import format_bytes, format_counted
from jupyter_ddl.protocol.folder import FolderFile, home_path, matches
from jupyter_ddl.protocol.replies import FilesResult
from jupyter_ddl.protocol.requests import FetchFile, ListFiles
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.store.atomic import replacing
from jupyter_ddl.store.connection import read_connection
from jupyter_ddl.store.paths import run_dir

__all__ = ["RunFiles", "files_of"]

_SHOWN = 50


class RunFiles(Sequence[FolderFile]):
    """The files as they are now, by path; those on workers stay there until they are fetched.

    Where ranks work in the notebook's own folder there are none: what they write is there.

    Parameters
    ----------
    first : str
        Worker whose file is meant where several have one of a name.
    stored : iterable of FolderFile
        Those of ``files`` that no worker is asked for: they lie in the run's directory, here or
        beside its controller.
    """

    def __init__(
        self,
        spec: RunSpec,
        files: Iterable[FolderFile],
        is_shared: bool,
        first: str,
        stored: Iterable[FolderFile] = (),
    ):
        self._spec = spec
        self._stored = frozenset(stored)
        self._files = tuple(sorted(files, key=lambda each: (each.path, each.worker)))
        self._is_shared = is_shared
        self._first = first

    @overload
    def __getitem__(self, at: int) -> FolderFile: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[FolderFile]: ...
    def __getitem__(self, at: int | slice) -> FolderFile | Sequence[FolderFile]:
        return self._files[at]

    def __len__(self) -> int:
        return len(self._files)

    @property
    def size_bytes(self) -> int:
        """Of all together."""
        return sum(each.size_bytes for each in self._files)

    def fetch(self, pattern: str = "*", to: str | Path | None = None) -> list[Path]:
        """Download files; returns where they are.

        Parameters
        ----------
        pattern : str
            Which, e.g. ``*.pt``; a pattern with a slash means whole paths.
        to : path, optional
            A folder; by default the one that the run was submitted in.  Files of these names are
            replaced there.

        Raises
        ------
        TrialError
            No file fits the pattern; the message says which there are.
        RunNotFoundError
            A worker that had one is gone.
        CapacityError
            There is no room for one.
        """
        chosen: dict[str, FolderFile] = {}
        for each in self._files:
            if matches(each.path, (pattern,)):
                known = chosen.get(each.path)
                if known is None or self._rank_of(each) > self._rank_of(known):
                    chosen[each.path] = each
        if not chosen and not self._is_shared:
            names = ", ".join(each.path for each in self._files[:10]) or "none"
            raise TrialError(
                f"run {self._spec.run_id} has no file {pattern!r}; there are {names}",
                run_id=self._spec.run_id,
            )
        folder = Path(self._spec.folder if to is None else to)
        return [self._bring(each, folder) for each in chosen.values()]

    def _rank_of(self, file: FolderFile) -> tuple[bool, float]:
        return file.worker == self._first, file.changed_at_s

    def _bring(self, file: FolderFile, folder: Path) -> Path:
        run_id, path = self._spec.run_id, home_path(file.worker, file.path)
        source = here(run_id, path) if file in self._stored else run_dir(run_id) / path
        known = source.stat() if source.exists() else None
        seen = file.size_bytes, file.changed_at_s
        if file not in self._stored and (not known or (known.st_size, known.st_mtime) != seen):
            session().begin(self._spec.cluster, FetchFile(run_id, file)).result()
        target = folder / file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        with source.open("rb") as data, replacing(target) as copy:
            shutil.copyfileobj(data, copy)
        return target

    def __repr__(self) -> str:
        if self._is_shared:
            return f"<the ranks worked in {self._spec.folder}: what they wrote is there>"
        head = f"{format_counted(len(self), 'file')}, {format_bytes(self.size_bytes)}"
        rows = [
            f"  {each.path}  {format_bytes(each.size_bytes)}  on {each.worker}"
            for each in self._files[:_SHOWN]
        ]
        more = [f"  … and {len(self) - _SHOWN} more"] if len(self) > _SHOWN else []
        return "\n".join([head, *rows, *more])


def files_of(spec: RunSpec, first: str) -> RunFiles:
    """Files of a run: those on its workers, and those that came back before the workers went."""
    info = read_connection(spec.cluster)
    home = [*_at_home(spec.run_id)]
    home += _beside_controller(spec, {home_path(each.worker, each.path) for each in home})
    there: tuple[FolderFile, ...] = ()
    if info is not None and not info.shares_files:
        try:
            answer = session().ask(spec.cluster, ListFiles(spec.run_id))
        except JupyterDDLError:
            answer = None  # the cluster ends in this moment
        there = answer.files if isinstance(answer, FilesResult) else ()
    known = {home_path(each.worker, each.path) for each in there}
    left = [each for each in home if home_path(each.worker, each.path) not in known]
    is_shared = not home and (info is None or info.shares_files)
    return RunFiles(spec, (*there, *left), is_shared, first, left)


def _at_home(run_id: str) -> Iterator[FolderFile]:
    root = run_dir(run_id) / "files"
    for path in root.glob("*/**/*"):
        if path.is_file():
            worker, *parts = path.relative_to(root).parts
            seen = path.stat()
            yield FolderFile("/".join(parts), seen.st_size, seen.st_mtime, worker)


def _beside_controller(spec: RunSpec, known: Container[str]) -> Iterator[FolderFile]:
    """Files that came back to a controller elsewhere, and are too large to be copied unasked."""
    for file in files_there(spec.run_id, spec.cluster):
        folder, _, rest = file.path.partition("/")
        worker, _, path = rest.partition("/")
        if folder == "files" and path and file.path not in known:
            yield FolderFile(path, file.size_bytes, file.changed_at_ns / 1e9, worker)
