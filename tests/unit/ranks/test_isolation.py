"""What one trial may change for the next one in the same process: nothing. And seeds."""

from __future__ import annotations

import gc
import sys
import warnings
import weakref
from typing import Any

import pytest

from jupyter_ddl.protocol.assignment import derive_seed
from jupyter_ddl.protocol.events import Reported


def test_the_process_is_put_back_after_a_trial(host: Any) -> None:
    source = (
        "import os, sys, warnings, io\n"
        "os.environ['DDL_TEST_NEW'] = '1'\n"
        "os.environ.pop('PATH')\n"
        "os.environ['HOME'] = '/elsewhere'\n"
        "os.mkdir('/tmp/ddl-%d' % os.getpid()); os.chdir('/tmp/ddl-%d' % os.getpid())\n"
        "os.rmdir(os.getcwd())\n"
        "sys.path.append('/elsewhere')\n"
        "sys.argv.append('--elsewhere')\n"
        "sys.stdout = io.StringIO()\n"
        "warnings.simplefilter('ignore')\n"
    )
    lists = (sys.path.copy(), sys.argv.copy(), warnings.filters.copy())
    others = (sys.stdout, sys.modules["__main__"])
    assert host.load(source).run().failure is None
    assert (sys.path, sys.argv, warnings.filters) == lists
    assert (sys.stdout, sys.modules["__main__"]) == others
    # The environment and the directory are checked by the fixture.


def test_names_of_a_trial_are_gone_in_the_next(host: Any) -> None:
    rank = host.load("v = int('left' in globals())\nleft = 1\n", metric="v")
    assert [rank.run(trial).value for trial in range(2)] == [0, 0]


class Canary:
    """Something whose death can be observed."""


def test_values_of_a_trial_die_with_it_without_a_collection(host: Any) -> None:
    alive: list[Any] = []
    source = "def f(): return big\nbig = canary()\nkeep(big)\nf()\n"
    sys.modules["ddl_canary"] = module = type(sys)("ddl_canary")
    module.canary, module.keep = Canary, lambda each: alive.append(weakref.ref(each))  # type: ignore[attr-defined]
    gc.disable()
    try:
        host.load("from ddl_canary import canary, keep\n" + source).run()
        assert alive[0]() is None
    finally:
        gc.enable()
        del sys.modules["ddl_canary"]


def test_values_of_a_failed_trial_die_too(host: Any) -> None:
    alive: list[Any] = []
    sys.modules["ddl_canary"] = module = type(sys)("ddl_canary")
    module.canary, module.keep = Canary, lambda each: alive.append(weakref.ref(each))  # type: ignore[attr-defined]
    gc.disable()
    try:
        source = "def f(big):\n    keep(big)\n    1 / 0\nf(canary())\n"
        host.load("from ddl_canary import canary, keep\n" + source).run()
        assert alive[0]() is None
    finally:
        gc.enable()
        del sys.modules["ddl_canary"]


def test_finalizers_still_see_modules_and_functions(host: Any, capfd: Any) -> None:
    source = (
        "import math\n"
        "def closing(): print('closed', math.pi > 3)\n"
        "class Resource:\n"
        "    def __del__(self): closing()\n"
        "resource = Resource()\n"
    )
    host.load(source).run()
    assert capfd.readouterr().out == "closed True\n"


def test_everything_printed_is_out_when_a_trial_has_ended(host: Any, capfd: Any) -> None:
    source = "import ctypes\nprint('py', end='')\nctypes.CDLL(None).printf(b'c')\n"
    host.load(source).run()
    assert sorted(capfd.readouterr().out.replace("py", "p")) == ["c", "p"]


def test_a_stop_while_a_failure_is_described_still_cleans_up(host: Any) -> None:
    source = (
        "from jupyter_ddl.ranks.stopping import TrialStopped\n"
        "class Stubborn(Exception):\n"
        "    def __str__(self): raise TrialStopped('cancelled')\n"
        "raise Stubborn\n"
    )
    main = sys.modules["__main__"]
    assert host.load(source).run().outcome == "cancelled"
    assert sys.modules["__main__"] is main


def test_figures_are_closed(host: Any) -> None:
    pytest.importorskip("matplotlib")
    source = (
        "import matplotlib\nmatplotlib.use('agg')\nimport matplotlib.pyplot as plt\n"
        "v = len(plt.get_fignums())\nplt.figure()\n"
    )
    rank = host.load(source, metric="v")
    assert [rank.run(trial).value for trial in range(2)] == [0, 0]


DRAWS = (
    "import random, numpy as np, torch\n"
    "report(a=random.random(), b=np.random.rand(), c=torch.rand(()))\n"
)


def test_the_same_seed_draws_the_same_numbers(host: Any) -> None:
    rank = host.load(DRAWS, program={"imports": ("numpy", "torch")})
    for trial, seed in enumerate((7, 7, 8)):
        rank.run(trial, seed=seed)
    first, again, other = (each.metrics for each in rank.of(Reported))
    assert first == again
    assert all(first[name] != other[name] for name in "abc")


def test_torch_draws_what_its_own_seeding_gives(host: Any) -> None:
    import torch

    rank = host.load(DRAWS)
    rank.run(seed=2**32 - 1)
    torch.manual_seed(2**32 - 1)
    assert rank.of(Reported)[0].metrics["c"] == float(torch.rand(()))


def test_trial_seeds_differ_and_are_stable() -> None:
    seeds = {derive_seed(run, trial) for run in range(50) for trial in range(50)}
    assert len(seeds) == 2500
    assert all(0 <= each < 2**32 for each in seeds)
    # Pinned: a resumed run must draw what it drew before an upgrade.
    assert derive_seed(0, 0) == 4047753923
