"""Shows a recording in a notebook: the player while there is a kernel for it, else static HTML."""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from jupyter_ddl.client.run_names import find_run
from jupyter_ddl.errors import JupyterDDLError, RecordingError
from jupyter_ddl.recording.lines import Head, Recording, read_recording, time_of
from jupyter_ddl.recording.page import save_page
from jupyter_ddl.recording.timeline import last_snapshot, timeline_of
from jupyter_ddl.recording.write import record_run
from jupyter_ddl.store.timelines import keep_timeline
from jupyter_ddl.views.bundle import live_css, replay_esm
from jupyter_ddl.views.display import RUN_MIME, is_watched
from jupyter_ddl.views.html import render_html
from jupyter_ddl.views.text import render_text

__all__ = ["MAX_SPEED", "Replay", "ReplayWidget", "replay"]


# The player of recordings as a widget: once it is there, it needs no kernel.


class ReplayWidget(anywidget.AnyWidget):
    """Holds a timeline; tells when a view of it has played to the end.

    Parameters
    ----------
    run_id : str
        Of the recorded run.
    timeline : bytes
        As :func:`jupyter_ddl.recording.timeline.timeline_of` makes it.
    speed : float
        How much faster than the run it plays at first.
    """

    _esm = replay_esm()
    _css = live_css()
    run_id = traitlets.Unicode().tag(sync=True)
    timeline = traitlets.Bytes().tag(sync=True)
    speed = traitlets.Float(1.0).tag(sync=True)

    def __init__(self, run_id: str, timeline: bytes, speed: float, **names: Any) -> None:
        super().__init__(run_id=run_id, timeline=timeline, speed=speed, **names)


log = logging.getLogger(__name__)

MAX_SPEED = 1000.0
_FILE = re.compile(r"[/\\]|\.jsonl?(\.gz)?$|\.gz$")
_SIMULATED = "Simulated run, played from a recording."
_RECORDED = "Played from a recording."


def replay(
    path: str | Path, speed: float = 4.0, on_notice: Callable[[str], None] = log.warning
) -> Replay:
    """Play a recorded run in the live view: no cluster is needed, and none is started.

    Parameters
    ----------
    path : path
        A file that ``%runs export RUN FILE.jsonl`` has written; ``.jsonl.gz`` works as well.  Where
        there is no such file, a run of this host: its id or its name.
    speed : float
        How much faster than the run, above 0 and at most 1000; the view can change it.
    on_notice : callable
        Gets a line where several runs have the name: the newest of them is played.

    Returns
    -------
    Replay
        Shows itself at the end of a cell; :meth:`Replay.save_html` writes a page of it.

    Raises
    ------
    RecordingError
        The file is missing, is not a recording, has a newer format or is damaged; or ``speed`` is
        out of range.
    RunNotFoundError
        There is neither such a file nor such a run.
    """
    if not 0 < speed <= MAX_SPEED:
        raise RecordingError(
            f"replaying {path} failed: speed is {speed}; give more than 0 and at most {MAX_SPEED:g}"
        )
    return Replay(_recording(path, on_notice), speed)


def _recording(path: str | Path, on_notice: Callable[[str], None]) -> Recording:
    """A file's, else a run's: what looks like a file is none's name."""
    if isinstance(path, str) and not _FILE.search(path) and not Path(path).exists():
        return record_run(find_run(path, on_notice))
    return read_recording(path)


class Replay:
    """A recording as it is shown.

    Parameters
    ----------
    recording : Recording
    speed : float
        How much faster than the run it plays at first.
    """

    def __init__(self, recording: Recording, speed: float) -> None:
        self._recording = recording
        self._speed = speed
        self.snapshot = last_snapshot(recording)
        """The run as it ended, or as far as it was recorded."""

    @property
    def head(self) -> Head:
        """What the recording says of itself: its origin, the run, the cell."""
        return self._recording.head

    @property
    def recording(self) -> Recording:
        """All facts."""
        return self._recording

    def save_html(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write one page of HTML that plays it in any browser, without kernel and server.

        Raises
        ------
        RecordingError
            The file is there already, or can't be written; or the run is too large for a page.
        """
        path = Path(path).expanduser()
        save_page(self._recording, path, speed=self._speed, overwrite=overwrite)
        return path

    def _ipython_display_(self) -> None:
        from IPython.display import display

        if not is_watched():
            display(self.still(), raw=True)
            return
        from jupyter_ddl.views.widget import WIDGET_MIME, widget_view

        timeline = timeline_of(self._recording)
        widget = ReplayWidget(self.head.run_id, timeline, self._speed)
        display_id = f"ddl-{uuid.uuid4().hex}"
        widget.on_msg(_Ending(self, widget, display_id))
        # The panel plays what the home keeps, with a kernel or without.
        own: dict[str, Any] = {"run_id": self.head.run_id, "is_recording": True}
        own |= {"timeline": _kept(timeline), "speed": self._speed}
        bundle = {RUN_MIME: own, WIDGET_MIME: widget_view(widget), **self.still()}
        display(bundle, raw=True, display_id=display_id)

    def still(self) -> dict[str, str]:
        """The end of the run, for front ends without widgets and for the saved notebook."""
        note = _SIMULATED if self.head.origin == "simulated" else _RECORDED
        now_s = self._now_s
        drawn = render_html(self.snapshot, now_s=now_s, live=False)
        return {
            "text/html": f"<div><i>{note}</i></div>{drawn}",
            "text/plain": f"{note}\n{render_text(self.snapshot, now_s)}",
        }

    @property
    def _now_s(self) -> float:
        return max(map(time_of, self._recording.facts))

    def __repr__(self) -> str:
        return f"<Replay of {self.head.origin} run {self.head.run_id}, {self.snapshot.state}>"


def _kept(timeline: bytes) -> str:
    """Digest of the timeline in the home; empty: it could not be kept there."""
    try:
        return keep_timeline(timeline)
    except (OSError, JupyterDDLError) as error:
        log.warning("the player ends with its kernel: keeping its timeline failed: %s", error)
        return ""


class _Ending:
    """Puts the static form in the player's place once somebody has seen the end elsewhere."""

    def __init__(self, shown: Replay, widget: ReplayWidget, display_id: str) -> None:
        self._shown = shown
        self._widget = widget
        self._display_id = display_id

    def __call__(self, _widget: Any, content: Any, _buffers: Any) -> None:
        if not isinstance(content, dict) or content.get("kind") != "seen":
            return
        from IPython.display import update_display

        update_display(self._shown.still(), raw=True, display_id=self._display_id)
        self._widget.close()
