"""The notebook's settings in a rank process, and what trials make of them put back."""

from __future__ import annotations

import contextlib
import pickle
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from jupyter_ddl.protocol.program import Settings
from jupyter_ddl.protocol.reading import from_msgpack
from jupyter_ddl.ranks.imports import after_import
from jupyter_ddl.settings import LIBRARIES, Library, put, put_back
from jupyter_ddl.store.blobs import read_blob

__all__ = ["RankSettings"]


class RankSettings:
    """Settings of all libraries in this process.  Used on the main thread.

    A library that is not imported here is given its settings when it is, by whomever.

    Attributes
    ----------
    problems : list of str
        One sentence for each setting that could not be made since somebody looked.
    """

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._blob: str | None = None
        self._waiting: dict[str, bytes] = {}
        self._replaced: list[tuple[Library, dict[str, Any]]] = []
        self._kept: dict[Library, dict[str, Any]] | None = None
        self._late: dict[Library, dict[str, Any]] = {}
        """What imports have completed since :meth:`complete`."""
        self._is_watching = False

    def use(self, settings: Settings | None, blob_dirs: Iterable[Path]) -> None:
        """Put the notebook's settings into force, in place of those that were used before.

        Raises
        ------
        BlobMissingError
            They are not on this host.
        """
        blob = None if settings is None else settings.blob
        if blob == self._blob:
            return
        while self._replaced:
            library, values = self._replaced.pop()
            self.problems += put(library, values)
        self._waiting = {}
        if blob is not None:
            self._waiting = from_msgpack(read_blob(blob, blob_dirs), dict[str, bytes])
        self._blob = blob
        for library in LIBRARIES:
            if library.is_imported:
                self._make(library)
        self._watch_imports()

    def keep(self) -> None:
        """What is set now is what :meth:`restore` goes back to."""
        self._kept = {}
        for library in LIBRARIES:
            if library.is_imported:
                self._keep(library)
        self._watch_imports()

    def complete(self) -> None:
        """Make again what imports of a trial had completed, and the trial's end has undone."""
        while self._late:
            self.problems += put(*self._late.popitem())

    def restore(self) -> None:
        """Undo what a trial has set."""
        for library, before in (self._kept or {}).items():
            self.problems += put_back(library, before)

    def take_problems(self) -> list[str]:
        """The problems that were not told yet."""
        found, self.problems = self.problems, []
        return found

    def print_problems(self) -> None:
        """Tell them in the rank's log."""
        sys.stderr.writelines(f"{problem}\n" for problem in self.take_problems())

    def _make(self, library: Library) -> None:
        data = self._waiting.pop(library.name, None)
        if data is None:
            return
        try:
            wanted: dict[str, Any] = pickle.loads(data)
            before = library.values()
        except Exception as error:  # noqa: BLE001 - unpickling runs code of the value's own
            self.problems.append(
                f"settings of the notebook not carried: those of {library.name} can't be read "
                f"here ({type(error).__name__}: {error}); set them inside the cell"
            )
            return
        self._replaced.append((library, {name: before.get(name) for name in wanted}))
        self.problems += put(library, wanted)
        for package in library.waits_for(wanted):
            after_import(package, partial(self._make_late, library, wanted, self._blob))

    def _make_late(self, library: Library, wanted: dict[str, Any], blob: str | None) -> None:
        if blob == self._blob:
            self._late[library] = wanted
            self.problems += put(library, wanted)

    def _keep(self, library: Library) -> None:
        if self._kept is not None and library.restored:
            with contextlib.suppress(Exception):  # another version may have it elsewhere
                self._kept[library] = library.values()

    def _watch_imports(self) -> None:
        if not self._is_watching:
            self._is_watching = True
            for library in LIBRARIES:
                if not library.is_imported:
                    after_import(library.module, partial(self._imported, library))

    def _imported(self, library: Library) -> None:
        self._make(library)
        self._keep(library)
