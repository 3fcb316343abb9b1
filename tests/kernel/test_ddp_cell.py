"""``%%distribute ddp`` and a search of ddp runs, in a real kernel with a real cluster."""

from __future__ import annotations

import re

import pytest

from tests.kernel.cells import TRAIN
from tests.live_kernel import LiveKernel

pytestmark = pytest.mark.kernel


@pytest.fixture
def kernel(attached_kernel: LiveKernel) -> LiveKernel:
    return attached_kernel


def test_one_cell_runs_plainly_on_two_ranks_and_as_a_search_of_two_rank_groups(
    kernel: LiveKernel,
) -> None:
    plain = kernel.run(TRAIN, timeout_s=60).check()
    assert "rank 0 says 1.0" in plain.text

    ddp = kernel.run("%%distribute ddp -n 2 --bring model -o group\n" + TRAIN, 60).check()

    (view,) = [bundle for bundle in ddp.displays if "text/html" in bundle]
    assert "2 ranks · 2 complete · step 2" in view["text/plain"]
    assert re.search(r"model ← rank 0 \(\d+.* B, dict\)", ddp.text)
    assert "[0] rank 0 says 1.5\n" in ddp.text
    assert kernel.value("float(model['mean']), model['from']") == "(1.5, 0)"
    assert kernel.value("model['mean'].device.type, group is _run") == "('cpu', True)"
    assert kernel.value("group.logs(1)") == repr("rank 1 says 1.5\n")
    both = kernel.run("%runs logs last").check().text
    assert re.search(r"rank 0 of 2.*rank 0 says 1.5.*rank 1 of 2.*rank 1 says 1.5", both, re.S)
    assert kernel.run("%runs logs last --rank 1").check().text == "rank 1 says 1.5\n"
    assert kernel.value("[row.state for row in group.snapshot().ranks]") == str(["complete"] * 2)
    assert "step 2" in kernel.run("%runs").check().everything
    assert kernel.value("repr(group)").endswith(" complete, 2 ranks, step 2>'")
    assert "2; ddp over auto" in kernel.run("%runs show last").check().everything

    line = (
        "%%distribute search --metric val_acc --trials 3 --ranks-per-trial 2 --bring model -o s\n"
    )
    searched = kernel.run(line + TRAIN, 90).check()

    assert "3 of 3 trials" in searched.everything
    assert kernel.value("float(model['mean']), s.state") == "(1.5, 'complete')"
    assert kernel.value("abs(s.best.value - 4.5 * s.best.params['lr']) < 1e-6") == "True"
    assert "rank 1 of 2" in kernel.value("s.logs(0)")


def test_an_exception_on_one_rank_is_one_error_with_its_rank_and_the_cells_own_line(
    kernel: LiveKernel,
) -> None:
    cell = (
        "%%distribute ddp -n 2 --max-restarts 1\n"
        "import torch.distributed as dist\n"
        "def half(n):\n"
        "    return 1 / (n - 1)\n"
        "half(rank() + 2 if rank() == 0 else rank())\n"
        "dist.barrier()\n"
    )

    out = kernel.run(cell, timeout_s=60)

    assert out.error is not None
    name, value, traceback = out.error
    assert name == "RunFailedError"
    assert "ZeroDivisionError: rank 1: division by zero" in value
    assert "failed twice the same way at line 4" in value
    assert "], line 4, in half" in traceback
    assert "jupyter_ddl/" not in traceback
    assert out.everything.count("Traceback (most recent call last)") == 1
    assert "trial 0" not in value
    assert list(map(int, kernel.value("list(_run.errors)").strip("[]").split(",")))[-1] == 1
    assert "Rank 1: ZeroDivisionError" in out.displays[-1]["text/plain"]


def test_more_ranks_than_slots_are_refused_with_what_there_is(kernel: LiveKernel) -> None:
    out = kernel.run("%%distribute ddp -n 3\n1\n")

    assert out.error is not None
    assert re.search(r"3 ranks need as many slots, the cluster has \d", out.error[1])
    assert "%cluster scale 3" in out.error[1]


def test_the_python_twin_returns_what_each_rank_returned(kernel: LiveKernel) -> None:
    kernel.run(
        "import jupyter_ddl\n"
        "def work(base, *, factor):\n"
        "    from jupyter_ddl import rank\n"
        "    return base + factor * rank()\n"
        "run = jupyter_ddl.train(work, 2, args=(10,), kwargs={'factor': 5})\n",
        60,
    ).check()

    assert kernel.value("run.values") == "[10, 15]"


def test_an_interrupted_group_stops_at_its_next_report_and_resumes_from_its_checkpoint(
    kernel: LiveKernel,
) -> None:
    cell = (
        "import time\n"
        "saved = resume()\n"
        "first = saved['step'] + 1 if saved else 0\n"
        "print('from', first)\n"
        "for step in range(first, first + 400 if not first else first + 3):\n"
        "    time.sleep(0.05)\n"
        "    report(step=step, loss=1 / (step + 1))\n"
        "    checkpoint(step=step, w=step)\n"
    )
    message = kernel.start("%%distribute ddp -n 2 -o stopped\n" + cell)
    kernel.finish(message, 40, until_text="checkpoint at step 1")
    kernel.interrupt()
    out = kernel.finish(message, 40)

    assert "this cell with `--resume" in out.text
    assert kernel.value("stopped.state") == "'cancelled'"
    assert "cancelled" in kernel.run("%runs").check().everything

    line = "%%distribute ddp -n 2 --resume {stopped.id} -o again\n"
    resumed = kernel.run(line + cell, 60).check()

    assert "restarted from the checkpoint at step" in resumed.everything
    assert re.match(r"\[0\] from [1-9]", resumed.text)
    assert kernel.value("again.id == stopped.id, again.state") == "(True, 'complete')"
    assert kernel.value("int(again.logs(1).split()[1]) > 0") == "True"
    assert kernel.value("again.metrics.query('rank == 0').step.is_monotonic_increasing") == "True"


def test_a_stopped_group_without_a_checkpoint_says_that_it_would_begin_anew(
    kernel: LiveKernel,
) -> None:
    cell = (
        "import time\n"
        "print('begun')\n"
        "for step in range(400):\n"
        "    time.sleep(0.05)\n"
        "    report(step=step)\n"
    )
    message = kernel.start("%%distribute ddp -n 2 -o stopped\n" + cell)
    kernel.finish(message, 40, until_text="step 1")
    kernel.interrupt()
    out = kernel.finish(message, 40).check()

    assert out.text.startswith("[0] begun\nStopped before a checkpoint was saved; `--resume ")
    assert kernel.value("stopped.state") == "'cancelled'"
