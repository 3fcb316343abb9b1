"""What a saved notebook holds after Run All: readable anywhere, and small."""

from __future__ import annotations

import json

import nbformat
import pytest
from nbclient import NotebookClient

from jupyter_ddl.views.display import RUN_MIME
from tests.kernel.cells import QUICK
from tests.leaks import Home

pytestmark = pytest.mark.kernel

_LIMIT_BYTES = 64 * 1024


def _executed(home: Home, *sources: str) -> nbformat.NotebookNode:
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    notebook = nbformat.v4.new_notebook(cells=cells)
    client = NotebookClient(
        notebook,
        timeout=120,
        kernel_name="python3",
        resources={"metadata": {"path": str(home.work)}},
    )
    return client.execute()


def test_a_saved_run_is_its_name_static_html_and_text_below_64_kb(home: Home) -> None:
    notebook = _executed(
        home,
        "%load_ext jupyter_ddl",
        "%cluster start -n 2",
        "%%distribute search --metric val_acc --trials 40 --bring model\n" + QUICK,
        "_run",
        "%runs show last",
        "%cluster stop",
    )
    for cell in notebook.cells:
        for output in cell.outputs:
            if output.output_type in ("display_data", "execute_result"):
                assert set(output.data) <= {RUN_MIME, "text/html", "text/plain"}
        assert len(json.dumps(cell.outputs).encode()) <= _LIMIT_BYTES
    start, search = notebook.cells[1], notebook.cells[2]
    assert len(start.outputs) == 1
    assert "cluster local is ready with 2 workers" in start.outputs[0].data["text/plain"]
    view = search.outputs[0].data
    assert "40 of 40 trials" in view["text/plain"]
    assert set(view[RUN_MIME]) == {"run_id"}
    assert "<script" not in view["text/html"]
    assert "running" not in view["text/plain"]
