"""The player of recordings as a widget: once it is there, it needs no kernel."""

from __future__ import annotations

from typing import Any

import anywidget
import traitlets

from jupyter_ddl.views.bundle import live_css, replay_esm

__all__ = ["ReplayWidget"]


class ReplayWidget(anywidget.AnyWidget):
    """Holds a film; tells when a view of it has played to the end.

    Parameters
    ----------
    run_id : str
        Of the recorded run.
    film : bytes
        As :func:`jupyter_ddl.recording.film.film_of` makes it.
    speed : float
        How much faster than the run it plays at first.
    """

    _esm = replay_esm()
    _css = live_css()
    run_id = traitlets.Unicode().tag(sync=True)
    film = traitlets.Bytes().tag(sync=True)
    speed = traitlets.Float(1.0).tag(sync=True)

    def __init__(self, run_id: str, film: bytes, speed: float, **names: Any) -> None:
        super().__init__(run_id=run_id, film=film, speed=speed, **names)
