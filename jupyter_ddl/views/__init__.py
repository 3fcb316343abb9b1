"""Drawings of snapshots: live and static HTML, text, one line.

Views draw what they are given; they ask no controller and read no file.  ``live`` holds the modules
for the browser.  Lists of clusters and runs in JupyterLab's panel, and the heat map of a cluster's
workers, are drawn by ``labextension``.
"""

from jupyter_ddl.views.compare import ComparedRun, render_compare
from jupyter_ddl.views.display import LiveDisplay, NotebookScreen, TerminalScreen
from jupyter_ddl.views.drawing import Drawing
from jupyter_ddl.views.html import render_html
from jupyter_ddl.views.tables import ClusterRow, cluster_row, render_cluster, render_runs
from jupyter_ddl.views.text import render_line, render_text

__all__ = [
    "ClusterRow",
    "ComparedRun",
    "Drawing",
    "LiveDisplay",
    "NotebookScreen",
    "TerminalScreen",
    "cluster_row",
    "render_cluster",
    "render_compare",
    "render_html",
    "render_line",
    "render_runs",
    "render_text",
]
