"""Cells on a persistent group, from Python, through a real controller."""

from __future__ import annotations

import logging
import os
import signal
import threading
from typing import Any

import numpy as np
import psutil
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV

from jupyter_ddl.client.api import map_cell, search
from jupyter_ddl.client.clusters import Cluster
from jupyter_ddl.client.group import RankGroup, open_group
from jupyter_ddl.client.run import Run
from jupyter_ddl.client.session import session
from jupyter_ddl.errors import GroupLostError, PlacementError, RankFailedError, SpecError
from jupyter_ddl.sklearn_fit.fit_api import fit
from tests.until import PATIENCE_S, until

pytestmark = pytest.mark.integration


def pids(group: RankGroup) -> list[int]:
    return group.execute("import os\nos.getpid()").values


def interrupt_once(group: RankGroup, mark: str) -> threading.Thread:
    """Interrupt this thread as soon as the cell has printed ``mark`` on rank 0."""
    log = group.directory / "logs" / "rank-0.log"

    def work() -> None:
        until(lambda: mark in log.read_text(), 10, f"{mark} in {log}")
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_variables_stay_between_cells_and_ranks_know_their_place(group: RankGroup) -> None:
    first = group.execute("a = rank() * 10\nprint('rank', rank(), 'of', world_size())\n")
    assert first.outputs == ["rank 0 of 2\n", "rank 1 of 2\n"]
    assert group.execute("a + 1").values == [1, 11]


def test_a_cell_runs_on_the_addressed_ranks_only(group: RankGroup) -> None:
    group.execute("a = 0\n")
    changed = group.execute("a = 7\na", targets=[1])
    assert (changed.ranks, changed.values) == ((1,), [7])
    assert group.pull("a") == [0, 7]


def test_a_rank_that_does_not_exist_is_refused_by_number(group: RankGroup) -> None:
    with pytest.raises(SpecError, match="has ranks 0 to 1; -t names 5"):
        group.execute("1", targets=[0, 5])


def test_values_go_down_and_come_back(group: RankGroup) -> None:
    group.push({"numbers": [1, 2, 3]})
    group.execute("total = sum(numbers) + rank()\n")
    assert group.pull("total") == [6, 7]
    assert group.pull("total", targets=[1]) == [7]


SCALE = 3


def test_what_only_the_caller_has_is_told_and_pushed_by_itself(group: RankGroup) -> None:
    with pytest.raises(RankFailedError, match=r"has 'SCALE': push=\{'SCALE': SCALE\} sends it"):
        group.execute("SCALE + rank()\n")
    group.execute("SCALE = 10\n", targets=[1])
    assert group.execute("SCALE + rank()\n", targets=[1], push="auto").values == [11]
    assert group.execute("SCALE + rank()\n", push="auto").values == [3, 11]  # rank 0 lacked it
    assert group.execute("SCALE\n", push={"SCALE": 1}).values == [1, 1]


def test_classes_of_a_cell_are_brought_home(group: RankGroup) -> None:
    results = group.execute("class P:\n    x = 5\np = P()\n", bring=["p"])
    assert results.value("p", rank=1).x == 5


def test_a_function_sees_names_that_a_later_cell_changes(group: RankGroup) -> None:
    group.execute("x = 1\ndef f():\n    return x\n")
    group.execute("x = 2\n")
    assert group.execute("f()").values == [2, 2]


def test_a_failure_has_the_rank_and_the_line_and_the_others_are_counted(group: RankGroup) -> None:
    cell = "b = 1\nif rank() >= 0:\n    1 / 0\n"
    with pytest.raises(
        RankFailedError, match=r"rank 0, at line 4 .*rank 1\): ZeroDivisionError"
    ) as caught:
        group.execute(cell)
    assert caught.value.line == 4
    assert "In [ ], line 4" in caught.value.traceback
    assert group.pull("b") == [1, 1]


def test_a_cell_may_await_and_its_loop_stays(group: RankGroup) -> None:
    group.execute("import asyncio\nevent = asyncio.Event()\n")
    group.execute("asyncio.get_running_loop().call_soon(event.set)\nawait event.wait()\n")
    assert group.execute("event.is_set()").values == [True, True]


def test_what_c_code_and_children_print_belongs_to_the_cell(group: RankGroup) -> None:
    results = group.execute("import os\nos.system('echo from a child')\nNone", targets=[0])
    assert results.outputs == ["from a child\n"]


def test_an_interrupt_ends_the_cell_and_keeps_variables(group: RankGroup) -> None:
    group.execute("kept = 5\n")
    thread = interrupt_once(group, "begun")
    with pytest.raises(KeyboardInterrupt, match="interrupted on ranks 0-1; variables are kept"):
        group.execute("import time\nprint('begun', flush=True)\ntime.sleep(60)\n")
    thread.join()
    assert group.pull("kept") == [5, 5]


def test_a_second_cell_is_refused_while_one_is_executed(group: RankGroup) -> None:
    caught: list[BaseException] = []

    def second() -> None:
        log = group.directory / "logs" / "rank-0.log"
        until(lambda: "begun" in log.read_text(), 10)
        try:
            group.execute("1")
        except SpecError as error:
            caught.append(error)

    thread = threading.Thread(target=second)
    thread.start()
    group.execute("import time\nprint('begun', flush=True)\ntime.sleep(1)\n")
    thread.join()
    assert "still executes In [ ] on 2 of 2 ranks" in str(caught)


def test_a_killed_rank_ends_the_group_and_the_cell_says_which(group: RankGroup) -> None:
    victim, other = pids(group)
    cell = "import os, time\nos.kill(os.getpid(), 9) if rank() == 0 else time.sleep(60)"
    with pytest.raises(GroupLostError, match=rf"rank 0 \(pid {victim} .* by SIGKILL") as caught:
        group.execute(cell)
    assert "\n" not in str(caught.value)
    until(lambda: not psutil.pid_exists(other), 10, "the end of the other rank")
    assert open_group(initialize=False).id != group.id


def test_a_rank_that_dies_between_cells_is_told_by_the_next_one(
    group: RankGroup, cluster: Cluster
) -> None:
    os.kill(pids(group)[1], signal.SIGTERM)
    until(lambda: not cluster.status().groups, 10, "the end of the group")
    with pytest.raises(GroupLostError, match=r"rank 1 .* was ended by SIGTERM; its variables"):
        group.execute("1")


def test_reset_replaces_the_group(group: RankGroup, cluster: Cluster) -> None:
    group.execute("a = 1\n")
    fresh = open_group(2, initialize=False, reset=True)
    with pytest.raises(RankFailedError, match="NameError: name 'a' is not defined"):
        fresh.execute("a")
    assert [each.group_id for each in cluster.status().groups] == [fresh.id]
    with pytest.raises(GroupLostError, match="it was replaced"):
        group.execute("a")


def test_a_group_is_found_again_by_name(group: RankGroup) -> None:
    group.execute("a = 3\n")
    assert open_group().pull("a") == [3, 3]


def test_a_group_of_another_size_needs_a_reset(group: RankGroup) -> None:
    with pytest.raises(PlacementError, match="has 2 ranks, 1 were asked for; --reset"):
        open_group(1)


def test_a_group_that_does_not_fit_says_who_holds_the_slots(group: RankGroup) -> None:
    with pytest.raises(PlacementError, match=rf"needs 1 free slots; 0 of 2 are free.*{group.id}"):
        open_group(1, name="second")
    group.close()
    assert open_group(1, name="second", initialize=False).n_ranks == 1


def test_a_search_that_waits_for_a_groups_slots_says_so(group: RankGroup) -> None:
    run = search("acc = 1.0\nx = uniform(0, 1)", metric="acc", trials=1, wait=False)
    mailbox = session().watch("test", run.id)
    try:
        paused = until(lambda: (seen := mailbox.take(0.1)) and seen.decode().paused, 10)
        assert f"every slot is kept by `%%distribute run` ({group.id})" in paused
    finally:
        session().unwatch("test", run.id, mailbox)
    group.close()
    assert run.wait(PATIENCE_S).state == "complete"


def test_the_record_has_the_cells_and_their_output(group: RankGroup) -> None:
    group.execute("print('to be kept')\n")
    with pytest.raises(RankFailedError):
        group.execute("print('before it')\n1 / 0\n", targets=[1])
    run = Run(group.id)
    cells = until(lambda: c if len(c := run.snapshot().cells) == 2 else None, 5, "two cells")
    assert [(c.outcome, c.targets) for c in cells] == [("complete", (0, 1)), ("failed", (1,))]
    assert "to be kept" in run.logs()
    assert "ZeroDivisionError" in run.logs()
    # What a failed cell leaves in the log is none of the next cell's output.
    assert group.execute("print('after it')\n").outputs == ["after it\n", "after it\n"]
    group.close()
    assert until(lambda: run.state == "complete", 5)


def test_an_idle_group_keeps_no_cluster_alive(group: RankGroup, cluster: Cluster) -> None:
    assert cluster.status().idle_left_s is not None


class _CloseWhenTold(logging.Handler):
    """Ends a group as soon as the log says that it keeps every slot."""

    def __init__(self, group: RankGroup) -> None:
        super().__init__()
        self._group = group
        self.told: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if f"`%runs stop {self._group.id}` ends that group" in record.getMessage():
            self.told.append(record.getMessage())
            self._group.close()


@pytest.mark.parametrize("verb", ["map", "fit"])
def test_who_waits_for_the_slots_of_a_group_is_told(group: RankGroup, verb: str) -> None:
    handler = _CloseWhenTold(group)
    logger = logging.getLogger("jupyter_ddl.client.waiting")
    logger.addHandler(handler)
    try:
        if verb == "map":
            assert map_cell("item + 1", [1, 2]).values == [2, 3]
        else:
            grid = GridSearchCV(LogisticRegression(), {"C": [0.1, 1.0]}, cv=2, n_jobs=-1)
            rows = np.arange(40.0).reshape(20, 2)
            assert fit(grid, rows, [0, 1] * 10).best_params_["C"] in (0.1, 1.0)
    finally:
        logger.removeHandler(handler)
    assert len(handler.told) == 1


def test_a_killed_controller_takes_the_ranks_along(group: RankGroup, cluster: Cluster) -> None:
    ranks = pids(group)
    os.kill(cluster.status().controller_pid, signal.SIGKILL)
    until(lambda: not any(map(psutil.pid_exists, ranks)), 5, "the ranks' end")
    with pytest.raises(GroupLostError, match="its variables are gone"):
        group.execute("1")


def test_a_group_that_ends_with_its_cluster_says_why(group: RankGroup, cluster: Cluster) -> None:
    assert group.execute("kept = 1")
    cluster.stop()
    with pytest.raises(GroupLostError, match=r"\(the cluster ended: a client asked for it\)"):
        group.execute("kept")


def test_output_is_told_while_the_cell_runs(group: RankGroup) -> None:
    told: list[dict[int, str]] = []
    cell = "import time\nfor i in range(12):\n    print(i, flush=True)\n    time.sleep(0.1)\n"
    results = group.execute(cell, on_progress=lambda texts, _: told.append(texts))
    assert len(told) > 3
    assert told[0][0] != results.outputs[0]


def test_a_failed_rank_is_told_while_others_go_on(group: RankGroup) -> None:
    seen: list[Any] = []
    cell = "import time\nif rank() == 1:\n    1 / 0\ntime.sleep(2)\n"
    with pytest.raises(RankFailedError, match="rank 1, at line 4 of the cell: ZeroDivisionError"):
        group.execute(cell, on_progress=lambda _, done: seen.append(done))
    early = [each for each in seen if each is not None and each.waiting == (0,)]
    assert early[0].ranks[0].failure.type_name == "ZeroDivisionError"
