"""Figures and tables of ranks in the cell that runs them, in its record and in the notebook."""

from __future__ import annotations

import pytest

from tests.live_kernel import LiveKernel

pytestmark = pytest.mark.kernel

PNG = "image/png"
HTML = "text/html"

SHOWS = """import matplotlib.pyplot as plt
import pandas as pd
from jupyter_ddl import choice, rank, report

width = choice(1, 2, 3)
figure, axes = plt.subplots()
axes.plot([0, width])
plt.show()
display(pd.DataFrame({"width": [width]}))
report(step=0, score=float(width))
"""


@pytest.fixture
def kernel(attached_kernel: LiveKernel) -> LiveKernel:
    return attached_kernel


def rich(out: object) -> list[dict[str, str]]:
    """What stands below the view, in order."""
    shown = [bundle for bundle in out.displays if any(bundle.values())]  # type: ignore[attr-defined]
    return [b for b in shown if PNG in b or "dataframe" in b.get(HTML, "")]


def test_a_training_shows_the_first_ranks_figures_and_tables_below_its_view(
    kernel: LiveKernel,
) -> None:
    cell = SHOWS + "for n in range(30):\n    pass\npd.DataFrame({'rank': [rank()]})\n"

    out = kernel.run("%%distribute ddp -n 2\n" + cell, 90).check()

    figure, table, value = rich(out)
    assert PNG in figure
    assert "<th>width</th>" in table[HTML]
    assert "<th>rank</th>" in value[HTML]
    assert "Figure(" not in out.text
    assert kernel.value("[sorted(o.data)[0] for o in _run.outputs]") == str([PNG, HTML, HTML])
    again = kernel.run("_run.show_outputs()").check()
    assert [PNG in bundle for bundle in rich(again)] == [True, False, False]
    # What rank 1 shows is printed where its output is.
    assert "width" in kernel.value("_run.logs(1)")
    assert "width" not in kernel.value("_run.logs(0)")


def test_a_search_shows_its_best_trials_outputs_and_keeps_those_of_all(kernel: LiveKernel) -> None:
    line = "%%distribute search --metric score --sampler grid -o s\n"

    out = kernel.run(line + SHOWS, 90).check()

    figure, table = rich(out)
    assert PNG in figure
    assert "<td>3</td>" in table[HTML]
    assert "s.show_outputs(trial=…)" in out.text
    assert kernel.value("[o.trial for o in s.outputs]") == str([0, 0, 1, 1, 2, 2])
    (_, other) = rich(kernel.run("s.show_outputs(trial=0)").check())
    assert "<td>1</td>" in other[HTML]
    refused = kernel.run("s.show_outputs(trial=7)")
    assert "trial 7 of run" in str(refused.error)


def test_a_map_shows_what_its_elements_show_in_their_order(kernel: LiveKernel) -> None:
    cell = (
        "%%distribute map --over n in names -o m\n"
        "import matplotlib.pyplot as plt\n"
        "plt.plot([0, len(n)])\n"
        "display({'text/plain': n, 'text/html': f'<p class=dataframe>{n}</p>'}, raw=True)\n"
        "n.upper()"
    )
    kernel.run("names = ['a', 'b', 'c']").check()

    out = kernel.run(cell, 90).check()

    kinds = [PNG if PNG in bundle else bundle["text/plain"] for bundle in rich(out)]
    assert kinds == ["a", PNG, "b", PNG, "c", PNG]
    assert kernel.value("m.values") == str(["A", "B", "C"])


def test_what_replaces_itself_is_one_output_and_bars_are_one_line(kernel: LiveKernel) -> None:
    cell = (
        "%%distribute ddp -n 1\n"
        "import sys, time\n"
        "from IPython.display import HTML, clear_output, display, update_display\n"
        "from tqdm.notebook import tqdm\n"
        "for n in tqdm(range(40)):\n"
        "    clear_output(wait=True)\n"
        "    display(HTML(f'<p class=dataframe>{n}</p>'))\n"
        "display(HTML('<p class=dataframe>first</p>'), display_id='x')\n"
        "update_display(HTML('<p class=dataframe>second</p>'), display_id='x')\n"
    )

    out = kernel.run(cell, 90).check()

    assert [bundle[HTML] for bundle in rich(out)] == [
        "<p class=dataframe>39</p>",
        "<p class=dataframe>second</p>",
    ]
    assert out.text.count("%|") == 1
    assert "100%|" in out.text
    assert kernel.value("_run.logs(0).strip().count('\\n'), '100%|' in _run.logs(0)") == "(0, True)"
    assert kernel.value("len(list((_run.directory / 'outputs').iterdir()))") == "2"


def test_a_persistent_group_shows_the_first_ranks_figures_and_values(kernel: LiveKernel) -> None:
    cell = (
        "%%distribute run -o results\n"
        "import matplotlib.pyplot as plt\n"
        "import pandas as pd\n"
        "plt.plot([1, 2])\n"
        "print('drawn')\n"
        "pd.DataFrame({'a': [1]})"
    )

    out = kernel.run(cell, 90).check()

    (value, figure) = rich(out)
    assert HTML in value
    assert PNG in figure
    assert "] drawn" in out.everything
    assert "Out[" not in out.everything
    assert kernel.value("len(results.shown), results.texts[0][:4].strip()") == "(2, 'a')"


@pytest.mark.parametrize("line", ["ddp -n 1", "run -n 1"])
def test_a_figure_stands_below_a_cell_that_raises(kernel: LiveKernel, line: str) -> None:
    cell = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nraise SystemExit(3)\n"

    out = kernel.run(f"%%distribute {line}\n{cell}", 90)

    assert out.status == "error"
    (figure,) = rich(out)
    assert PNG in figure
    if line.startswith("run"):  # the next cell begins with what it shows itself
        after = kernel.run("%%distribute run\nprint('next')\n", 90).check()
        assert after.everything.strip() == "[0] next"
