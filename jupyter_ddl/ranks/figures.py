"""A backend of matplotlib for ranks: draws with Agg, and ``show()`` shows what a notebook would."""

from __future__ import annotations

from typing import Any

from matplotlib._pylab_helpers import Gcf
from matplotlib.backend_bases import FigureManagerBase
from matplotlib.backends.backend_agg import FigureCanvasAgg

from jupyter_ddl.ranks.outputs import show_figure

__all__ = ["FigureCanvas", "FigureManager", "show"]

FigureManager = FigureManagerBase
FigureCanvas = FigureCanvasAgg


def show(*_args: Any, **_options: Any) -> None:
    """Show all open figures, and close them, as they are in a notebook."""
    for manager in Gcf.get_all_fig_managers():
        show_figure(manager.canvas.figure)
    Gcf.destroy_all()
