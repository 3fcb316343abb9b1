"""Rich outputs of a cell (figures, tables, images): files of its run, each named by an event.

What is shown goes through IPython's own functions.  Once a rank has imported IPython, they find a
shell here whose only part is the one for outputs; nothing else of a shell is there.
"""

from __future__ import annotations

import base64
import contextlib
import importlib
import importlib.util
import io
import os
import sys
import threading
import time
from collections.abc import Callable, MutableMapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from jupyter_ddl.formats import format_bytes
from jupyter_ddl.protocol.outputs import Bundle
from jupyter_ddl.ranks.imports import after_import
from jupyter_ddl.store.atomic import write_whole

__all__ = [
    "MAX_OUTPUTS",
    "Outputs",
    "choose_renderers",
    "clear",
    "close",
    "drop_oldest",
    "figure_png",
    "figures_of_failures",
    "is_rich",
    "publish",
    "set_outputs",
    "show_figure",
    "show_figures",
    "show_value",
    "watch_imports",
]

MAX_OUTPUTS = 8
"""The newest ones of an attempt, or of a cell on a rank, are kept."""
MAX_OUTPUT_BYTES = 4 << 20
_INTERVAL_S = 0.5
_INTERVAL_SHARE = 0.01
"""What replaces itself all the time is written less often the longer that goes on."""
_NO_MODEL = "application/vnd.jupyter.widget-view+json"
"""A widget's model would be in this process, which no front end can reach."""

Tell = Callable[[str, int, tuple[str, ...]], None]
"""Takes a file that has changed, its size, and the names of all that are shown, in order."""


class _Slot(msgspec.Struct):
    file: str
    display_id: str | None
    pending: Bundle | None = None
    """Not written yet."""


class Outputs:
    """What one attempt, or one cell on a rank, shows.  Any thread.

    Parameters
    ----------
    folder : str or Path
        Where the files go.
    stem : str
        Beginning of their names.
    """

    def __init__(self, folder: str | Path, stem: str, tell: Tell) -> None:
        self._folder = folder
        self._stem = stem
        self._tell = tell
        self._slots: list[_Slot] = []
        self._n_shown = 0
        self._unkept: list[str] = []
        """Files that have been written and are shown no more."""
        self._is_cleared = False
        self._began_s = time.monotonic()
        self._next_s = 0.0
        self._timer: threading.Timer | None = None
        self._guard = threading.RLock()
        self._pid = os.getpid()

    @property
    def is_ours(self) -> bool:
        """Whether this process is the rank, and not one that the cell has forked."""
        return os.getpid() == self._pid

    @property
    def files(self) -> tuple[str, ...]:
        """Of all that is shown now, in order."""
        return tuple(slot.file for slot in self._slots)

    def show(self, bundle: Bundle, display_id: str | None = None, *, is_update: bool) -> None:
        """Add an output, or replace those of a display id."""
        with self._guard:
            if is_update:
                for slot in self._slots:
                    if slot.display_id == display_id:
                        slot.pending = bundle
            else:
                n_gone = len(self._slots) + (0 if self._is_cleared else 1 - MAX_OUTPUTS)
                self._is_cleared = False
                gone = self._slots[: max(0, n_gone)]
                del self._slots[: len(gone)]
                self._unkept += [slot.file for slot in gone]
                self._n_shown += 1
                file = f"{self._stem}-{self._n_shown}.json"
                self._slots.append(_Slot(file, display_id, bundle))
            self._write_soon()

    def clear(self) -> None:
        """The next output takes the place of all."""
        with self._guard:
            self._is_cleared = True

    def close(self) -> None:
        """Write what waits; nothing comes behind it."""
        if self._n_shown:
            self._write()

    def _write_soon(self) -> None:
        wait_s = self._next_s - time.monotonic()
        if wait_s <= 0:
            self._write()
        elif self._timer is None:
            self._timer = threading.Timer(wait_s, self._write)
            self._timer.daemon = True
            self._timer.start()

    def _write(self) -> None:
        with self._guard:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            now_s = time.monotonic()
            age_s = now_s - self._began_s
            self._next_s = now_s + max(_INTERVAL_S, _INTERVAL_SHARE * age_s)
            for slot in self._slots:
                bundle, slot.pending = slot.pending, None
                if bundle is not None:
                    self._save(slot.file, bundle)
            unkept, self._unkept = self._unkept, []
            for file in unkept:
                Path(self._folder, file).unlink(missing_ok=True)

    def _save(self, file: str, bundle: Bundle) -> None:
        data = msgspec.json.encode(bundle)
        try:
            # Made here, not for each of thousands of trials that show nothing.
            folder = Path(self._folder)
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(folder / file, data)
        except OSError as error:
            _print(f"{bundle.text}\n(this output could not be kept: {error.strerror})")
            return
        self._tell(file, len(data), self.files)


_current: Outputs | None = None


def set_outputs(outputs: Outputs | None) -> None:
    """Say where what is shown from now on belongs; None: it is printed."""
    global _current
    _current = outputs


def publish(
    data: dict[str, Any],
    metadata: dict[str, Any] | None = None,
    display_id: str | None = None,
    *,
    is_update: bool = False,
) -> None:
    """Show a bundle of MIME types; one that is only text is printed, unless it may be replaced."""
    bundle = _bounded(data, metadata or {})
    outputs = _current
    is_plain = bundle.data.keys() <= {"text/plain"} and display_id is None
    if is_plain or outputs is None or not outputs.is_ours:
        _print(bundle.text)
    else:
        outputs.show(bundle, display_id, is_update=is_update)


def close() -> None:
    """Write what waits to be shown; what comes behind it is printed."""
    if _current is not None and _current.is_ours:
        _current.close()
    set_outputs(None)


def clear() -> None:
    """The next output takes the place of all that are shown."""
    if _current is not None and _current.is_ours:
        _current.clear()


def _print(text: str) -> None:
    if text:
        sys.stdout.write(f"{text}\n")


def _bounded(data: dict[str, Any], metadata: dict[str, Any]) -> Bundle:
    """What can travel, without the forms that are too large."""
    sizes: dict[str, int] = {}
    for mime, value in data.items():
        if mime != _NO_MODEL:
            with contextlib.suppress(Exception):  # an object of the user's that is no JSON
                sizes[mime] = len(msgspec.json.encode(value))
    left_out = []
    while sum(sizes.values()) > MAX_OUTPUT_BYTES:
        largest = max(sizes, key=lambda mime: sizes[mime])
        left_out.append(f"{largest} of {format_bytes(sizes.pop(largest))}")
    kept = {mime: data[mime] for mime in sizes}
    if left_out and kept.keys() <= {"text/plain"}:
        limit = format_bytes(MAX_OUTPUT_BYTES)
        why = f"({' and '.join(left_out)} left out: an output may have {limit})"
        kept = {"text/html": f"<i>{why}</i>", "text/plain": f"{kept.get('text/plain', '')} {why}"}
    known = {mime: each for mime, each in metadata.items() if mime in kept}
    return Bundle(kept, known if _is_json(known) else {})


def _is_json(value: Any) -> bool:
    try:
        msgspec.json.encode(value)
    except (TypeError, ValueError, msgspec.MsgspecError):
        return False
    return True


# Values and figures of a cell.

_REPRESENTATIONS = (
    "_ipython_display_", "_repr_mimebundle_", "_repr_html_", "_repr_markdown_", "_repr_latex_",
    "_repr_svg_", "_repr_png_", "_repr_jpeg_",
)  # fmt: skip


def is_rich(value: Any) -> bool:
    """Whether a notebook would show more than text; asked before anything of IPython is loaded."""
    if isinstance(value, type) or value is None:
        return False
    kind = type(value)
    return _is_figure(value) or any(hasattr(kind, name) for name in _REPRESENTATIONS)


def show_value(value: Any) -> bool:
    """Show a cell's last value as a notebook would; False: it is only text, and was left alone."""
    if _current is None or not is_rich(value) or importlib.util.find_spec("IPython") is None:
        return False
    importlib.import_module("IPython")  # which loads the shell behind it
    shell = importlib.import_module("jupyter_ddl.ranks.shell")
    data, metadata = shell.bundle_of(value)
    if data.keys() - {"text/plain"}:
        publish(data, metadata)
    return set(data) != {"text/plain"}


def drop_oldest(folder: Path, shown: Sequence[str], limit_bytes: int) -> None:
    """Remove what earlier cells of a persistent group have shown, where it is too much."""
    files: list[tuple[float, int, Path]] = []
    for path in folder.glob("cell-*.json"):
        with contextlib.suppress(OSError):  # another rank of the group has removed it
            found = path.stat()
            files.append((found.st_mtime, found.st_size, path))
    excess = sum(size for _, size, _ in files) - limit_bytes
    for _, size, path in sorted(files):
        if excess <= 0:
            return
        if path.name not in shown:
            path.unlink(missing_ok=True)
            excess -= size


def show_figures(shown: Any = None) -> None:
    """Show the figures that a cell leaves open, but for the one that was its value; close them."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None or pyplot.get_backend() != f"module://{_BACKEND}":
        return
    for number in pyplot.get_fignums() if _current is not None else ():
        figure = pyplot.figure(number)
        if figure is not shown and figure.axes:
            show_figure(figure)
    pyplot.close("all")


class _FiguresOfFailures:
    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            with contextlib.suppress(Exception):  # what the cell raised counts
                show_figures()


figures_of_failures = _FiguresOfFailures()
"""Within this, the figures that a cell leaves open are shown also where it raises, as notebooks do.
"""


def show_figure(figure: Any) -> None:
    """Show a figure of matplotlib."""
    publish({"image/png": figure_png(figure), "text/plain": repr(figure)})


def _is_figure(value: Any) -> bool:
    module = sys.modules.get("matplotlib.figure")
    return module is not None and isinstance(value, module.Figure)


def figure_png(figure: Any) -> str:
    """Base64 of its picture."""
    file = io.BytesIO()
    face = figure.get_facecolor()
    figure.savefig(file, format="png", dpi=figure.dpi, bbox_inches="tight", facecolor=face)
    return base64.b64encode(file.getvalue()).decode()


# How libraries find out where to draw.

_BACKEND = "jupyter_ddl.ranks.figures"
_OF_NOTEBOOKS = ("", "inline", "module://matplotlib_inline.backend_inline")


def choose_renderers(environ: MutableMapping[str, str]) -> None:
    """Have matplotlib and plotly show through this module, where the user has chosen nothing."""
    if environ.get("MPLBACKEND", "") in _OF_NOTEBOOKS:
        environ["MPLBACKEND"] = f"module://{_BACKEND}"
    environ.setdefault("PLOTLY_RENDERER", "plotly_mimetype+notebook_connected")


def watch_imports() -> None:
    """Be told when a cell, or what it imports, loads a library that shows things."""
    after_import("IPython", _give_shell)
    after_import("tqdm.notebook", _draw_text_bars)


def _give_shell() -> None:
    importlib.import_module("jupyter_ddl.ranks.shell").install()


def _draw_text_bars() -> None:
    """A bar of widgets would have its model here, where no front end finds it."""
    bars: Any = sys.modules["tqdm.notebook"]
    plain = importlib.import_module("tqdm.std")
    bars.tqdm = bars.tqdm_notebook = plain.tqdm
    bars.trange = bars.tnrange = plain.trange
