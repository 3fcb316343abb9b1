"""``%%distribute`` from the first line to the result, in a real kernel with a real cluster."""

from __future__ import annotations

import re

import pytest

from tests.kernel.cells import QUICK
from tests.live_kernel import LiveKernel

pytestmark = pytest.mark.kernel


def test_a_cell_becomes_a_search_by_its_first_line_and_its_results_come_home(
    kernel: LiveKernel,
) -> None:
    plain = kernel.run(QUICK).check()
    assert "step 2" in plain.text
    assert "done 0.01" in plain.text

    line = "%%distribute search --metric val_acc --trials 6 --seed 7 --bring model,lr -o first\n"
    searched = kernel.run(line + QUICK, timeout_s=60).check()

    assert "No cluster yet: starting local" in searched.everything
    views = [bundle for bundle in searched.displays if "text/html" in bundle]
    assert len(views) == 1
    assert "6 of 6 trials" in views[0]["text/plain"]
    assert re.search(r"model ← best trial \d+ \(\d+ B, dict\)", searched.text)
    assert kernel.value("first is _run, first.state, len(first.trials)") == "(True, 'complete', 6)"
    assert kernel.value("model['w'] == lr == first.best.params['lr']") == "True"
    assert kernel.value("sorted(first.metrics.step.unique().tolist())") == "[0, 1, 2]"
    assert "done" in kernel.value("first.logs(0)")

    again = kernel.run(
        "%%distribute search --metric val_acc --trials 6 --seed 7 -o second\n" + QUICK
    )
    assert "No cluster yet" not in again.check().everything
    same = "[t.lr for t in first.trials.itertuples()] == [t.lr for t in second.trials.itertuples()]"
    assert kernel.value(same) == "True"


def test_a_map_gives_results_in_order_and_values_of_the_line_expand(
    attached_kernel: LiveKernel,
) -> None:
    kernel = attached_kernel
    kernel.run("items = [3, 1, 2]\nn = 5\ntitle = 'three squares'").check()

    out = kernel.run("%%distribute map --over x in items --name {title} -o m\n{'x': x * n}", 60)

    assert "3 of 3 items" in out.check().everything
    assert kernel.value("m.values") == "[{'x': 15}, {'x': 5}, {'x': 10}]"
    assert kernel.value("m.spec.name") == "'three squares'"

    kernel.run("n = 7").check()
    out = kernel.run("%%distribute map --over x in items --resume {m.id}\n{'x': x * n}").check()
    assert f"Note: n changed since run {kernel.value('m.id')[1:-1]} was made, and it" in out.text
    assert kernel.value("_run.values[0]") == "{'x': 15}"

    kernel.run("%%distribute map --over items --bring twice\ntwice = item * 2\n").check()
    assert kernel.value("twice") == "[6, 2, 4]"


def test_a_failed_search_shows_the_users_own_lines_and_none_of_ours(
    attached_kernel: LiveKernel,
) -> None:
    kernel = attached_kernel
    cell = (
        "%%distribute search --metric acc --trials 2 --max-failures 1\n"
        "from jupyter_ddl import report, uniform\n"
        "def train(x):\n"
        "    return 1 / (x - x)\n"
        "x = uniform(0, 1)\n"
        "report(step=0, acc=train(x))\n"
    )

    out = kernel.run(cell)

    assert out.error is not None
    name, _, traceback = out.error
    assert name == "RunFailedError"
    # %load_ext is in In [1].
    assert "In [2], line 4, in train" in traceback
    assert "return 1 / (x - x)" in traceback
    assert "ZeroDivisionError: " in traceback
    assert "jupyter_ddl/" not in traceback
    assert out.everything.count("Traceback (most recent call last)") == 1
    assert kernel.value("_run.state") == "'failed'"


def test_the_status_table_names_size_and_lease_and_runs_can_be_managed(kernel: LiveKernel) -> None:
    started = kernel.run("%cluster start -n 2 --name small --idle-timeout 10m").check()
    assert re.search(
        r"Starting 2 workers · .*cluster small is ready with 2 workers \(\d", started.everything
    )
    status = kernel.run("%cluster").check().everything
    assert "2 workers with 2 slots, 0 busy" in status
    assert "if it stays idle" in status

    kernel.run("%%distribute search --metric val_acc --trials 4 --name demo\n" + QUICK).check()
    assert "demo" in kernel.run("%runs").check().everything
    shown = kernel.run("%runs show last").check().everything
    assert "loguniform(0.0001, 0.1)" in shown
    assert re.search(
        r"%%distribute search --metric val_acc --trials 4 --name demo --seed \d+", shown
    )
    assert "done" in kernel.run("%runs logs last --trial 1").check().text
    assert "The code is the same" in kernel.run("%runs compare last last").check().everything
    assert "facts of run" in kernel.run("%runs export last demo.jsonl").check().text
    assert (kernel.home.work / "demo.jsonl").read_text().count("\n") > 4
    assert "--yes deletes" in kernel.run("%runs rm last").check().text
    assert "is deleted" in kernel.run("%runs rm last --yes").check().text
    assert kernel.run("%runs").check().everything == "No runs yet."
    # A recording needs no run.
    replayed = kernel.run("%runs replay demo.jsonl").check().everything
    assert "4 of 4 trials" in replayed
    assert "Played from a recording." in replayed

    assert "1 worker wanted" in kernel.run("%cluster scale 1").check().text
    assert "between 1 and 2 workers" in kernel.run("%cluster adapt 1 2").check().text
    assert "ready" in kernel.run("%cluster logs --lines 1000").check().text
    assert "small has ended" in kernel.run("%cluster stop").check().text
    assert "No cluster is running" in kernel.run("%cluster").check().text
