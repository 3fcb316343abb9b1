"""Settings that a notebook has made are in force in its cells, whichever verb runs them."""

from __future__ import annotations

import ast

import pytest

from tests.live_kernel import LiveKernel

pytestmark = pytest.mark.kernel

_SET = """
import decimal, locale, logging, os, sys, warnings
import matplotlib, numpy as np, pandas as pd, sklearn, torch
torch.set_default_dtype(torch.float64)
torch.use_deterministic_algorithms(True, warn_only=True)
torch.backends.cudnn.benchmark = True
torch.set_float32_matmul_precision("high")
n_threads = torch.get_num_threads()
np.seterr(divide="raise")
np.set_printoptions(formatter={"float": lambda x: f"<{x:.1f}>"})
pd.set_option("display.max_rows", 7)
matplotlib.rcParams["lines.linewidth"] = 3.5
sklearn.set_config(transform_output="pandas")
decimal.getcontext().prec = 6
logging.basicConfig(level=logging.INFO, format="LOG %(message)s")
logging.getLogger("quiet").setLevel(logging.ERROR)
warnings.filterwarnings("error", category=UserWarning)
locale.setlocale(locale.LC_TIME, "C.UTF-8")
sys.setrecursionlimit(4321)
os.environ["SETTINGS_TEST_TOKEN"] = "s3cret-value"
os.environ["OMP_NUM_THREADS"] = "77"
"""
_SEEN = """
def seen():
    try:
        warnings.warn("loud", UserWarning)
        raised = False
    except UserWarning:
        raised = True
    logging.getLogger("mine").info("written")
    logging.getLogger("quiet").warning("unwritten")
    return [
        str(torch.tensor(1.0).dtype), torch.are_deterministic_algorithms_enabled(),
        torch.backends.cudnn.benchmark, torch.get_float32_matmul_precision(),
        np.geterr()["divide"], str(np.array([1.26])), pd.get_option("display.max_rows"),
        matplotlib.rcParams["lines.linewidth"], sklearn.get_config()["transform_output"],
        str(decimal.Decimal(1) / 3), raised, locale.setlocale(locale.LC_TIME),
        sys.getrecursionlimit(), os.environ["SETTINGS_TEST_TOKEN"],
        os.environ["OMP_NUM_THREADS"] == "77",
    ]
"""
_THERE = [
    "torch.float64", True, True, "high", "raise", "[<1.3>]", 7, 3.5, "pandas", "0.333333", True,
    "C.UTF-8", 4321, "s3cret-value", False,
]  # fmt: skip


def test_settings_of_the_notebook_are_in_force_under_every_verb(
    attached_kernel: LiveKernel,
) -> None:
    kernel = attached_kernel
    kernel.run(_SET, 120).check()
    kernel.run(_SEEN).check()
    assert ast.literal_eval(kernel.value("seen()"))[:-1] == _THERE[:-1]
    kernel.run("items = [1, 2]").check()
    shown = kernel.run("%%distribute map --over items --dry-run\nseen()").check().text
    assert "  torch: default_dtype='float64', deterministic=(True, True)" in shown
    assert "  environment: SETTINGS_TEST_TOKEN\n" in shown
    assert "LOG %(message)s' to stderr, logger" not in shown
    assert "s3cret-value" not in shown

    kernel.run("%%distribute map --over items -o r\nseen()").check()
    assert ast.literal_eval(kernel.value("r.values")) == [_THERE, _THERE]
    log = kernel.value("r.logs(0)")
    assert "LOG written" in log
    assert "unwritten" not in log
    assert (
        kernel.value("b's3cret-value' in r.directory.joinpath('ledger.ddl').read_bytes()")
        == "False"
    )

    cell = "x = choice(1, 2)\nfound = seen()\nreport(m=float(found[0] == 'torch.float64'))"
    kernel.run(f"%%distribute search --metric m --trials 2 --bring found -o r\n{cell}").check()
    assert ast.literal_eval(kernel.value("found")) == _THERE

    kernel.run("%%distribute ddp -n 2 --bring found\nfound = seen()").check()
    assert ast.literal_eval(kernel.value("found")) == _THERE

    kernel.run(
        "%%distribute run -n 2 --no-init --push seen --bring found\n"
        "import decimal, locale, logging, os, sys, warnings, matplotlib, sklearn, torch\n"
        "import numpy as np, pandas as pd\n"
        "found = seen()\nnp.set_printoptions(precision=1, formatter={})"
    ).check()
    assert ast.literal_eval(kernel.value("found")) == _THERE
    # What a cell of a group sets stays, as its variables do.
    out = kernel.run("%%distribute run\nstr(np.array([1.26]))").check()
    assert "Out[0-1" in out.everything
    assert "[1.3]" in out.everything
    kernel.run("%cluster scale 3").check()  # the group keeps two slots

    kernel.run(
        "from sklearn.base import BaseEstimator, ClassifierMixin\n"
        "class Tells(ClassifierMixin, BaseEstimator):\n"
        "    def __init__(self, a=1): self.a = a\n"
        "    def fit(self, X, y):\n"
        "        self.classes_ = np.unique(y)\n"
        "        self.seen_ = seen()\n"
        "        return self\n"
        "    def score(self, X, y): return float(seen() == there)\n"
        f"there = {_THERE!r}\n"
    ).check()
    kernel.run(
        "%%distribute fit\n"
        "from sklearn.model_selection import GridSearchCV\n"
        "grid = GridSearchCV(Tells(), {'a': [1, 2]}, cv=2, refit=False)\n"
        "grid.fit(np.arange(8.0).reshape(4, 2), [0, 1, 0, 1])\n"
    ).check()
    assert kernel.value("grid.cv_results_['mean_test_score'].tolist()") == "[1.0, 1.0]"


def test_what_cannot_be_carried_is_one_line_and_the_cell_runs(
    attached_kernel: LiveKernel,
) -> None:
    kernel = attached_kernel
    kernel.run(
        "import logging, socket, numpy as np, pandas as pd\n"
        "np.seterr(divide='raise')\n"
        "a, b = socket.socketpair()\n"
        "logging.root.addHandler(logging.StreamHandler(a.makefile('w')))\n"
        "pd.set_option('display.float_format', lambda x, a=a: str(x))\n"
        "np.random.shuffle = lambda x: x\n"
        "items = [1]"
    ).check()
    out = kernel.run(
        "%%distribute map --over items -o r\nnp.random.shuffle([1])\nnp.geterr()['divide']"
    ).check()
    notes = [line for line in out.text.splitlines() if line.startswith("Note:")]
    assert len(notes) == 4, notes  # the last one: the element is never read
    assert "a StreamHandler of the root logger" in notes[0]
    assert "pandas display.float_format" in notes[1]
    assert "the notebook has replaced numpy.random.shuffle" in notes[2]
    assert kernel.value("r.values") == "['raise']"
