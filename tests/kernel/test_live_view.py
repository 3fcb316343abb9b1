"""The live view of a cell in a real kernel: what it tells while the cell runs, and what it does."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator

import pytest

from jupyter_ddl.views.display import RUN_MIME
from jupyter_ddl.views.widget import WIDGET_MIME
from tests.kernel.cells import QUICK, STEADY
from tests.kernel.front_end import FrontEnd
from tests.leaks import end_processes, leftovers_of, new_home
from tests.live_kernel import LiveKernel

pytestmark = pytest.mark.kernel

SEARCH = "%%distribute search --metric acc --trials 4 --sampler random {}\n" + STEADY


@pytest.fixture(scope="module")
def live() -> Iterator[LiveKernel]:
    """A kernel with a cluster of two workers for all tests here."""
    with new_home() as home:
        kernel = LiveKernel(home)
        kernel.run("%load_ext jupyter_ddl\n%cluster start -n 2").check()
        yield kernel
        kernel.close()
        found = leftovers_of(home)
        end_processes(home)
        if found:
            pytest.fail("left behind:\n" + "\n".join(found), pytrace=False)


@pytest.fixture
def plain_end(live: LiveKernel) -> Iterator[FrontEnd]:
    """A front end that sends on the shell channel, as older ones do."""
    end = FrontEnd(live)
    yield end
    end.leave()


@pytest.fixture
def front_end(plain_end: FrontEnd) -> FrontEnd:
    """A front end that sends as JupyterLab does."""
    plain_end.open_subshell()
    return plain_end


def begin(end: FrontEnd, options: str = "") -> str:
    """Start a search; returns when the view has shown a report of it."""
    cell = end.start(SEARCH.format(options))
    end.until(lambda: end.comm_id, "the widget")
    end.send({"kind": "again", "seq": 0})
    end.until(lambda: end.snapshot().get("counts", {}).get("running"), "a running trial")
    end.until(lambda: end.bundles, "the first drawing")
    return cell


def test_the_view_lives_while_its_cell_runs_and_stops_it(front_end: FrontEnd) -> None:
    cell = begin(front_end)
    assert len(json.dumps(front_end.state).encode()) <= 256 * 1024
    assert set(front_end.bundles[-1]) == {RUN_MIME, WIDGET_MIME, "text/html", "text/plain"}
    n_before = len(front_end.messages)
    front_end.until(lambda: len(front_end.messages) >= n_before + 6, "six more messages")
    run_id = front_end.snapshot()["run_id"]

    front_end.send({"kind": "stop_trial", "id": 1, "run_id": run_id, "trial": 0})
    front_end.until(lambda: front_end.newest("done"), "the answer to stop_trial")
    front_end.until(lambda: front_end.snapshot()["counts"]["cancelled"], "trial 0's end")
    assert front_end.snapshot()["state"] == "running"

    front_end.send({"kind": "stop_run", "id": 2, "run_id": run_id, "how": "now"})
    front_end.until(lambda: front_end.snapshot()["state"] == "cancelled", "the run's end")
    assert front_end.finish(cell)["status"] == "ok"
    assert set(front_end.bundles[-1]) == {RUN_MIME, "text/html", "text/plain"}
    assert front_end.bundles[-1][RUN_MIME] == {"run_id": run_id}
    assert "cancelled" in front_end.bundles[-1]["text/plain"]
    front_end.send({"kind": "seen", "run_id": run_id})
    front_end.until(lambda: front_end.comm_id in front_end.closed, "the widget's end")


def test_trials_and_logs_are_answered_while_the_cell_runs(front_end: FrontEnd) -> None:
    cell = begin(front_end)
    run_id = front_end.snapshot()["run_id"]
    front_end.send({"kind": "get_columns", "id": 1, "run_id": run_id})
    front_end.send({"kind": "get_log", "id": 2, "run_id": run_id, "trial": 77})
    front_end.send({"kind": "get_log", "id": 3, "run_id": "r1-other"})
    front_end.until(lambda: front_end.newest("columns"), "the trials")
    told = front_end.newest("columns")
    assert told is not None
    assert told["n_trials"] >= 2
    assert len(told["values"]["x"]) == told["n_trials"]
    front_end.until(
        lambda: {2, 3} <= {m["id"] for m in front_end.messages if m["kind"] == "denied"},
        "two refusals",
    )
    front_end.until(lambda: front_end.newest("telemetry"), "telemetry")
    front_end.send({"kind": "stop_run", "id": 4, "run_id": run_id, "how": "now"})
    front_end.finish(cell)


def test_keep_best_finishes_with_the_best_trial_s_values(front_end: FrontEnd) -> None:
    source = QUICK.replace("for epoch", "import time\nfor epoch").replace(
        "    report(", "    time.sleep(0.1)\n    report("
    )
    cell = front_end.start(
        "%%distribute search --metric val_acc --trials 200 --bring model -o found\n" + source
    )
    front_end.until(lambda: front_end.comm_id, "the widget")
    front_end.send({"kind": "again", "seq": 0})
    front_end.until(
        lambda: front_end.snapshot().get("counts", {}).get("complete", 0) >= 3, "3 trials"
    )
    run_id = front_end.snapshot()["run_id"]
    front_end.send({"kind": "stop_run", "id": 1, "run_id": run_id, "how": "keep_best"})
    assert front_end.finish(cell)["status"] == "ok"
    end = front_end.bundles[-1]["text/plain"]
    assert "complete" in end
    assert "finished early by user" in end
    state = front_end.kernel.value("(found.state, found.best is not None, model['w'] > 0)")
    assert state == "('complete', True, True)"


def test_after_this_epoch_what_runs_is_complete_and_counts(front_end: FrontEnd) -> None:
    cell = begin(front_end, "--bring x -o found")
    front_end.until(lambda: front_end.snapshot()["counts"]["running"] == 2, "both trials")
    run_id = front_end.snapshot()["run_id"]
    front_end.send({"kind": "stop_run", "id": 1, "run_id": run_id, "how": "epoch"})
    assert front_end.finish(cell)["status"] == "ok"
    value = front_end.kernel.value(
        "(found.state, sum(found.trials.state == 'complete'), x == found.best.value)"
    )
    assert value == "('complete', 2, True)"


def test_a_run_that_is_not_waited_for_is_shown_beside_other_cells(front_end: FrontEnd) -> None:
    cell = front_end.start(SEARCH.format("-a -o found"))
    assert front_end.finish(cell)["status"] == "ok"
    assert front_end.comm_id
    front_end.send({"kind": "again", "seq": 0})
    front_end.until(lambda: front_end.snapshot().get("counts", {}).get("running"), "a trial")
    front_end.finish(front_end.start("1 + 1"))
    found = len(front_end.messages)
    front_end.until(lambda: len(front_end.messages) > found + 3, "messages afterwards")
    front_end.finish(front_end.start("found.cancel()"))
    front_end.until(lambda: "cancelled" in front_end.bundles[-1]["text/plain"], "static form")
    assert WIDGET_MIME not in front_end.bundles[-1]


def test_without_a_person_there_is_no_widget(live: LiveKernel) -> None:
    out = live.run("%%distribute search --metric val_acc --trials 4\n" + QUICK, 60).check()
    assert all(WIDGET_MIME not in bundle for bundle in out.displays)
    assert "4 of 4 trials" in out.displays[-1]["text/plain"]


def test_a_front_end_that_never_speaks_up_gets_html(front_end: FrontEnd) -> None:
    cell = front_end.start(SEARCH.format(""))
    front_end.until(lambda: front_end.comm_id, "the widget")
    front_end.until(lambda: front_end.bundles, "the first drawing")
    front_end.until(lambda: WIDGET_MIME not in front_end.bundles[-1], "HTML in its place")
    front_end.until(lambda: front_end.comm_id in front_end.closed, "the widget's end")
    assert "running" in front_end.bundles[-1]["text/plain"]
    front_end.kernel.interrupt()
    front_end.kernel.interrupt()
    front_end.finish(cell)


def test_hostile_messages_are_refused_and_the_run_goes_on(front_end: FrontEnd) -> None:
    cell = begin(front_end)
    rng = random.Random(7)
    run_id = front_end.snapshot()["run_id"]
    junk = [None, [], "x" * 100_000, {"kind": "stop_run"}, {"kind": ["stop_run"], "id": {}}]
    junk += [
        {"kind": "stop_run", "id": 1, "run_id": run_id, "how": "NOW"},
        {str(k): k for k in range(99)},
    ]
    for _ in range(1_000):
        front_end.send(rng.choice(junk))
    time_before = time.time()
    front_end.until(lambda: (front_end.newest() or {"at_s": 0})["at_s"] > time_before + 1, "news")
    assert front_end.snapshot()["state"] == "running"
    front_end.send({"kind": "stop_run", "id": 5, "run_id": run_id, "how": "now"})
    assert front_end.finish(cell)["status"] == "ok"


def test_a_front_end_without_subshells_is_heard_while_the_cell_runs(
    plain_end: FrontEnd,
) -> None:
    end = plain_end
    cell = begin(end)
    run_id = end.snapshot()["run_id"]
    later = end.start("2 + 2")
    end.send({"kind": "stop_run", "id": 1, "run_id": run_id, "how": "now"})
    end.until(lambda: end.newest("done"), "the answer")
    assert end.finish(cell)["status"] == "ok"
    assert end.finish(later)["status"] == "ok"


def test_a_page_that_is_loaded_again_learns_of_the_view_while_the_cell_runs(
    plain_end: FrontEnd,
) -> None:
    end = plain_end
    cell = begin(end)
    assert end.comm_id in end.comms()
    run_id = end.snapshot()["run_id"]
    end.send({"kind": "stop_run", "id": 1, "run_id": run_id, "how": "now"})
    end.finish(cell)
