"""The program of a run: the cell, and what it needs from the notebook."""

from __future__ import annotations

from typing import Protocol

import msgspec

from jupyter_ddl.protocol.space import ParamValue

__all__ = [
    "MAIN_GLOBALS",
    "CapturedName",
    "Labels",
    "LibrarySettings",
    "ModuleFile",
    "Placeholder",
    "Program",
    "Settings",
    "blobs_of",
]

MAIN_GLOBALS = "jupyter_ddl:main_globals"
"""Persistent id in a payload that stands for the trial's own ``__main__`` namespace, so that
functions of the notebook see the names of the trial that calls them."""


class CapturedName(msgspec.Struct, frozen=True):
    """A notebook variable that travels with the cell."""

    name: str
    type_name: str
    size_bytes: int
    """Bytes that this name adds to the payload, out-of-band buffers included."""


class Placeholder(msgspec.Struct, frozen=True):
    """An assignment at the top level or in a branch, whose value a trial's value replaces.

    ``line`` and ``column`` locate the assignment statement in :attr:`Program.source` as
    ``ast`` counts them (line from 1, column in UTF-8 bytes from 0).  A rank parses the source,
    finds the statement there and replaces its value, so all other line numbers stay as they are.
    """

    name: str
    line: int
    column: int
    by_index: bool = False
    """The parameter is a label, and the rank takes the argument of the original ``choice(…)``
    call that stands at the label's position in ``labels``."""
    labels: tuple[ParamValue, ...] = ()
    """Labels in the order of the call's positional arguments (``by_index`` only)."""


class Labels(msgspec.Struct, frozen=True):
    """A parameter of the dict of ``--space`` whose values are objects."""

    path: tuple[ParamValue, ...]
    """Keys that lead from the dict to the list of the objects."""
    values: tuple[ParamValue, ...]
    """Their labels, in its order."""


class ModuleFile(msgspec.Struct, frozen=True):
    """A file of the user's own that the cell imports, or names as data, by content."""

    path: str
    """Relative to the folder that it is imported from, with forward slashes (``pkg/sub.py``)."""
    digest: str
    size_bytes: int
    folder: str = ""
    """That folder, where it is not the notebook's."""


class LibrarySettings(msgspec.Struct, frozen=True):
    """What the notebook has set in one library, for people: environment variables by name only."""

    library: str
    text: str


class Settings(msgspec.Struct, frozen=True):
    """What the notebook has set in its process, in force wherever the cell runs."""

    blob: str
    """Digest of a dict in msgpack: a library's name → its settings by name, pickled."""
    carried: tuple[LibrarySettings, ...]


class Program(msgspec.Struct, frozen=True):
    """Everything a rank needs to execute the cell.  Frozen, and stored by content hash.

    ``payload`` is a cloudpickle stream in the blob store: ``len(captures)`` pickles one
    after another that share one memo, in the order of ``captures``.  Its large buffers
    (arrays) are separate blobs, ``buffers``, in the order in which unpickling asks for them.
    """

    source: str
    """The cell as plain Python.  Line 1 of the notebook's cell (the magic) is a blank
    line here, so that line numbers are the notebook's own."""
    filename: str
    """What tracebacks show, e.g. ``In [12]``."""
    sources: dict[str, str] = {}
    """Other cells that functions among the captures come from, by the name that tracebacks show."""
    placeholders: tuple[Placeholder, ...] = ()
    captures: tuple[CapturedName, ...] = ()
    payload: str | None = None
    buffers: tuple[str, ...] = ()
    modules: tuple[ModuleFile, ...] = ()
    settings: Settings | None = None
    """None: everything is as the libraries have it."""
    data: tuple[ModuleFile, ...] = ()
    """Other files beside the notebook that it names.  Where ranks see them, they are not sent and
    have no digests; elsewhere they are put into the rank's folder."""
    file_names: tuple[str, ...] = ()
    """Strings that may be relative names of files that it writes."""
    imports: tuple[str, ...] = ()
    """Top-level packages that the cell and its modules import, installed ones only."""
    ends_in_expression: bool = False
    """Whether the last statement is an expression; its value is the cell's value."""
    callbacks: bool = True
    """Whether training frameworks report by themselves (else: ``--no-callbacks``)."""
    own_calls: tuple[str, ...] = ()
    """Which of ``report``, ``checkpoint``, ``resume`` and ``prepare_step`` the cell or what it uses
    calls."""
    space_name: str | None = None
    """Captured name of the dict given by ``--space``; None without one."""
    space_labels: dict[str, Labels] = {}
    """Parameters of that dict whose values are labels: the rank takes the element of the
    dict's list at the label's position."""


class _Carrier(Protocol):
    """A program, a cell of a persistent group, or a table of fits."""

    @property
    def payload(self) -> str | None: ...
    @property
    def buffers(self) -> tuple[str, ...]: ...
    @property
    def modules(self) -> tuple[ModuleFile, ...]: ...
    @property
    def settings(self) -> Settings | None: ...


def blobs_of(carrier: _Carrier) -> list[str]:
    """Digests of everything that it refers to; data files that are not sent have none."""
    payload = () if carrier.payload is None else (carrier.payload,)
    settings = () if carrier.settings is None else (carrier.settings.blob,)
    files: tuple[ModuleFile, ...] = (*carrier.modules, *getattr(carrier, "data", ()))
    return [*payload, *settings, *carrier.buffers, *(each.digest for each in files if each.digest)]
