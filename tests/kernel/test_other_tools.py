"""Tools that people use with notebooks, under the verbs: `make test-kernel` installs them."""

from __future__ import annotations

import nbformat
import pytest

from tests.leaks import Home
from tests.live_kernel import LiveKernel

pytestmark = pytest.mark.kernel


@pytest.fixture
def kernel(attached_kernel: LiveKernel) -> LiveKernel:
    return attached_kernel


def test_what_numba_has_compiled_travels_with_its_function(kernel: LiveKernel) -> None:
    pytest.importorskip("numba")
    kernel.run(
        "import numba\n@numba.njit\ndef f(x):\n    return x * 2\n@numba.njit(cache=True)\n"
        "def g(x):\n    return f(x) + 1\n@numba.vectorize(['float64(float64)'])\ndef v(x):\n"
        "    return x + 3\ng(3)"
    ).check()
    kernel.run("%%distribute map --over n in range(3) -o m\nf(n), g(n), float(v(n))", 120).check()
    assert kernel.value("m.values") == "[(0, 1, 3.0), (2, 3, 4.0), (4, 5, 5.0)]"
    own = "import numba\n@numba.njit(cache=True)\ndef h(x):\n    return x * 7\nh(n)"
    kernel.run(f"%%distribute map --over n in range(3) -o m\n{own}", 120).check()
    assert kernel.value("m.values") == "[0, 7, 14]"


def test_accelerates_launcher_gets_the_ranks_that_are_there(kernel: LiveKernel) -> None:
    pytest.importorskip("accelerate")
    cell = (
        "from accelerate import Accelerator, notebook_launcher\ndef train(scale):\n"
        "    import torch\n    there = Accelerator(cpu=True)\n"
        "    total = there.reduce(torch.ones(1), 'sum')\n"
        "    print(there.process_index, there.num_processes, float(total) * scale)\n"
        "notebook_launcher(train, (3,), num_processes=2)"
    )
    kernel.run(f"%%distribute ddp -n 2 -o run\n{cell}", 120).check()
    logs = [kernel.value(f"run.logs({rank})") for rank in range(2)]
    assert ["0 2 6.0" in logs[0], "1 2 6.0" in logs[1]] == [True, True]


def test_a_figure_of_plotly_is_shown_and_a_huge_one_is_named(kernel: LiveKernel) -> None:
    pytest.importorskip("plotly")
    # One long text: plotly would look at each of a million numbers.
    cell = "import plotly.graph_objects as go\ngo.Figure(go.Scatter(y=[1], text='x' * %s))"
    out = kernel.run(f"%%distribute ddp -n 1\n{cell % 3}", 120).check()
    assert "application/vnd.plotly.v1+json" in out.displays[-1]
    out = kernel.run(f"%%distribute ddp -n 1 -o run\n{cell % 5_000_000}", 120).check()
    assert not any("application/vnd.plotly.v1+json" in each for each in out.displays)
    assert int(kernel.value("max(each.path.stat().st_size for each in run.outputs)")) < 65536


@pytest.mark.parametrize(
    ("package", "cell"),
    [
        (
            "h5py",
            "import h5py\nwith h5py.File(os.path.join('out', 'model.h5'), 'w') as f: f['x'] = x",
        ),
        (
            "safetensors",
            "import numpy as np\nfrom safetensors.numpy import save_file\n"
            "save_file({'x': np.full(3, x)}, 'out/model.h5')",
        ),
    ],
)
def test_trials_that_write_one_file_in_c_are_told_once(
    kernel: LiveKernel, package: str, cell: str
) -> None:
    pytest.importorskip(package)
    (kernel.home.work / "out").mkdir()
    search = "%%distribute search --metric score --trials 6 --max-parallel 1"
    source = f"import os\nx = choice(1, 2)\n{cell}\nreport(step=0, score=x)"
    out = kernel.run(f"{search}\n{source}", 120).check()
    shown = " ".join(out.everything.split())
    assert shown.count("which the cell names, has changed during trials") == 1


def test_papermill_runs_a_notebook_with_its_parameters(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    papermill = pytest.importorskip("papermill")
    monkeypatch.chdir(home.work)
    cells = [nbformat.v4.new_code_cell(source) for source in _CELLS]
    cells[0].metadata["tags"] = ["parameters"]
    notebook = nbformat.v4.new_notebook(cells=cells)
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "", "language": "python"}
    nbformat.write(notebook, home.work / "in.ipynb")
    done = papermill.execute_notebook("in.ipynb", "out.ipynb", {"k": 5}, progress_bar=False)
    outputs = {cell.source: cell.outputs for cell in done.cells}
    assert outputs["run.values"][0].data["text/plain"] == "[0, 5, 10]"
    assert "3 of 3 items" in str(outputs[_CELLS[2]])


_CELLS = (
    "k = 1",
    "%load_ext jupyter_ddl\n%cluster start -n 1",
    "%%distribute map --over n in range(3) -o run\nn * k",
    "run.values",
    "%cluster stop",
)
