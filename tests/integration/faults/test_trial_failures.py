"""Trials that break: each fails alone, with its reason, after its own budget."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jupyter_ddl.client.clusters import Cluster, start_cluster
from jupyter_ddl.errors import RunFailedError
from jupyter_ddl.protocol.events import StopRequested
from tests.leaks import Home
from tests.run_tools import assert_clean, outcomes, start_map, start_search
from tests.until import PATIENCE_S

pytestmark = pytest.mark.integration

BREAKING = """
import ctypes, os
if item == "segfault":
    ctypes.string_at(0)
elif item == "exit":
    os._exit(7)
elif item == "raise":
    raise ValueError("bad luck")
elif item == "memory":
    hoard = bytearray(os.urandom(1) * (600 << 20))
    import time
    time.sleep(60)
item
"""
FLAKY = """
from pathlib import Path
from jupyter_ddl import report, uniform
x = uniform(0.0, 1.0)
mark = Path({marks!r}) / str(x)
with mark.open("a") as file:
    file.write("x")
if mark.stat().st_size < {n_good}:
    raise OSError("not yet")
score = x
"""


@pytest.fixture
def limited(home: Home) -> Iterator[Cluster]:
    """A cluster whose ranks may hold 400 MB."""
    cluster = start_cluster(n_workers=2, name="test", memory_bytes=400 << 20)
    yield cluster
    cluster.stop()


def test_trials_that_break_fail_alone_after_three_tries_with_their_reason(
    limited: Cluster,
) -> None:
    items = ["a", "segfault", "b", "exit", "c", "raise", "memory", "d"]
    run = start_map(BREAKING, items)
    with pytest.raises(RunFailedError, match="4 of 8 trials failed"):
        run.wait(PATIENCE_S)
    assert run.values == ["a", None, "b", None, "c", None, None, "d"]
    assert_clean(run)
    kinds = {items[n]: (why.kind, why.type_name) for n, why in run.errors.items()}
    assert kinds == {
        "segfault": ("crash", "SIGSEGV"),
        "exit": ("crash", "exit code 7"),
        "raise": ("exception", "ValueError"),
        "memory": ("memory", "SIGKILL"),
    }
    assert "string_at" in run.errors[1].traceback
    assert "400 MiB" in run.errors[6].message
    trials = run.trials.set_index("number")
    assert list(trials["own_failures"]) == [0, 3, 0, 3, 0, 3, 3, 0]
    assert list(trials["evictions"]) == [0] * 8
    assert list(trials["attempts"]) == [1, 3, 1, 3, 1, 3, 3, 1]


def test_a_trial_has_as_many_tries_as_the_line_says(cluster: Cluster, home: Home) -> None:
    cell = FLAKY.format(marks=str(home.work), n_good=5)
    good = start_search(cell, 3, max_failures=5).wait(PATIENCE_S)
    assert list(good.trials["own_failures"]) == [4, 4, 4]
    assert_clean(good, 3)


def test_a_hopeless_run_ends_early_with_the_first_cause_and_can_be_resumed(
    cluster: Cluster, home: Home
) -> None:
    cure = home.work / "cure"
    cell = f"""
from pathlib import Path
from jupyter_ddl import uniform
x = uniform(0.0, 1.0)
score = x if Path({str(cure)!r}).exists() else 1 / 0
"""
    run = start_search(cell, 40)
    with pytest.raises(RunFailedError, match="at line 6 of the cell: ZeroDivisionError: division"):
        run.wait(PATIENCE_S)
    n_failed = run.snapshot().counts.failed
    assert n_failed < 20
    assert "failed the same way" in run.snapshot().reason
    # Not a person's stop: the run is failed, and says why.
    assert {e.by for e in run.events() if isinstance(e, StopRequested)} == {"jupyter_ddl"}
    cure.touch()
    again = start_search(cell, 40, resume=run.id).wait(PATIENCE_S)
    assert again.state == "complete"
    assert (again.snapshot().counts.failed, again.snapshot().counts.complete) == (0, 40)
    assert_clean(again)
    assert len(outcomes(again, "complete")) == 40
