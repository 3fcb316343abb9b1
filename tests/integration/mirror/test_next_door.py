"""A controller elsewhere, seen from here: runs, cells and fits do not know the difference."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import numpy as np
import pytest
from sklearn.ensemble import RandomForestRegressor

import jupyter_ddl
from jupyter_ddl.client.api import search
from jupyter_ddl.client.clusters import Cluster, list_clusters, start_cluster
from jupyter_ddl.client.group import open_group
from jupyter_ddl.client.run import Run
from jupyter_ddl.store.connection import read_connection
from tests.integration.mirror.next_door import Door, opened_door
from tests.leaks import Home
from tests.run_tools import STEPS, assert_clean, start_search
from tests.until import until

pytestmark = pytest.mark.integration

_NAME = "there"
_SLOW = STEPS.replace("0.05", "0.2")


@pytest.fixture
def door(home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[Door]:
    with opened_door(monkeypatch) as found:
        try:
            yield found
        finally:
            for each in list_clusters():
                each.stop()


@pytest.fixture
def there(door: Door) -> Cluster:
    """A cluster with one worker, whose controller lives next door."""
    return start_cluster("nextdoor", 1, name=_NAME)


def _mirror_pid() -> int:
    info = read_connection(_NAME)
    assert info is not None
    return info.process.pid


def _audited(run: Run) -> None:
    assert_clean(run)


def test_a_run_is_here_when_it_is_over(there: Cluster, door: Door, home: Home) -> None:
    data = list(range(100_000))
    run = search(
        STEPS + "print('n', len(data))\nmodel = [x] * 10\n",
        namespace={"data": data},
        metric="score",
        trials=3,
        bring=("model",),
    )
    assert run.state == "complete"
    assert run.directory.is_relative_to(home.data)
    assert (door.data / "runs" / run.id / "ledger.ddl").exists()
    assert run.logs(0) == "n 100000\n"
    assert len(run.value("model")) == 10
    assert len(run.trials) == 3
    assert_clean(run)
    there.stop()
    assert not door.is_open(_NAME)
    assert Run(run.id).value("model") == run.value("model")


def test_a_killed_mirror_loses_nothing(there: Cluster, door: Door) -> None:
    run = start_search(_SLOW, 8)
    until(lambda: len(run.trials.query("state == 'complete'")) >= 2, 60, "two trials")
    first = _mirror_pid()
    os.kill(first, signal.SIGKILL)
    assert run.wait(120).state == "complete"
    assert _mirror_pid() != first
    assert list(run.trials["attempts"]) == [1] * 8
    assert_clean(run)


@pytest.mark.parametrize("is_disk_lost", [False, True])
def test_a_run_goes_on_when_its_controller_is_made_anew(
    there: Cluster, door: Door, *, is_disk_lost: bool
) -> None:
    """With its disk lost as well, the mirror gives the run back."""
    run = start_search(_SLOW, 8)
    until(lambda: len(run.trials.query("state == 'complete'")) >= 2, 60, "two trials")
    done = set(run.trials.query("state == 'complete'").index)
    mirror = _mirror_pid()
    door.end(_NAME, signal.SIGKILL)
    if is_disk_lost:
        door.lose_disk()
    door.start_again(_NAME)
    assert run.wait(120).state == "complete"
    assert _mirror_pid() == mirror
    again = set(run.trials.query("attempts > 1").index)
    assert not again & done
    assert_clean(run)


def test_cells_of_a_group_and_their_output(there: Cluster, door: Door) -> None:
    with open_group(1) as group:
        seen: list[str] = []
        results = group.execute(
            "\nimport time\nprint('first')\ntime.sleep(1)\nx = 3\nx + 4\n",
            on_progress=lambda texts, _: seen.extend(texts.values()),
        )
        assert results.values == [7]
        assert any("first" in text for text in seen)
        assert group.pull("x") == [3]


def test_a_fit_whose_outcomes_are_files(there: Cluster, door: Door, home: Home) -> None:
    """A forest of scikit-learn: tables go up, and trees of a megabyte come down."""
    features = np.random.default_rng(0).normal(size=(20_000, 4))
    forest = RandomForestRegressor(4, n_jobs=-1, random_state=0)
    jupyter_ddl.fit(forest, features, features[:, 0])
    assert forest.score(features, features[:, 0]) > 0.9
    assert list((home.data / "runs").glob("*/values/*"))
