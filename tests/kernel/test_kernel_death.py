"""A kernel that is killed or restarted takes no run with it."""

from __future__ import annotations

import pytest

from jupyter_ddl.ledger.audit import audit
from tests.leaks import Home
from tests.live_kernel import LiveKernel
from tests.until import until

pytestmark = pytest.mark.kernel

_CELL = """%%distribute search --metric acc --trials 12 --seed 3
import time
from jupyter_ddl import report, uniform

x = uniform(0.0, 1.0)
for step in range(6):
    time.sleep(0.1)
    report(step=step, acc=x)
"""

_PATIENT = "import jupyter_ddl.magics.kernel as _k\n_k._SHUTDOWN_WAIT_S = 60.0"
"""However long a busy machine takes from the interrupt to the request to shut down."""


def test_a_new_kernel_sees_the_run_of_a_killed_one_through(home: Home) -> None:
    from jupyter_ddl.client.history import list_runs
    from jupyter_ddl.client.run import Run

    first = LiveKernel(home)
    first.run("%load_ext jupyter_ddl").check()
    first.run("%cluster start -n 2").check()
    first.finish(first.start(_CELL), until_text="2 running")

    first.kill()
    second = LiveKernel(home)
    try:
        second.run("%load_ext jupyter_ddl").check()
        out = second.run("%runs attach last", timeout_s=60).check()

        assert "12 of 12 trials" in out.everything
        assert "Nothing drives run" not in out.text  # the same controller drove it all the time
        (summary,) = list_runs()
        events = Run(summary.run_id).events()
        assert audit(events) == []
        assert summary.state == "complete"
        assert [event.trial for event in events if type(event).__name__ == "TrialCreated"] == list(
            range(12)
        )
    finally:
        second.close()


def test_a_restart_does_not_stop_the_run_of_the_cell_that_it_interrupts(home: Home) -> None:
    from jupyter_ddl.client.history import list_runs

    kernel = LiveKernel(home)
    try:
        kernel.run("%load_ext jupyter_ddl").check()
        kernel.run("%cluster start -n 2").check()
        kernel.run(_PATIENT).check()
        kernel.finish(kernel.start(_CELL), until_text="2 running")

        kernel.restart()

        kernel.run("%load_ext jupyter_ddl").check()
        assert "12 of 12 trials" in kernel.run("%runs attach last", timeout_s=60).check().everything
        (summary,) = list_runs()
        assert summary.state == "complete"
    finally:
        kernel.close()


def test_a_restart_does_not_end_the_cell_of_a_persistent_group(home: Home) -> None:
    kernel = LiveKernel(home)
    try:
        kernel.run("%load_ext jupyter_ddl").check()
        kernel.run("%cluster start -n 1").check()
        kernel.run(_PATIENT).check()
        cell = "%%distribute run\nimport time\nprint('begun')\ntime.sleep(5)\nkept = 42"
        kernel.finish(kernel.start(cell), until_text="begun")

        kernel.restart()

        kernel.run("%load_ext jupyter_ddl").check()
        ask = "%%distribute run\nkept"  # refused while the group still executes the other cell
        until(lambda: "42" in kernel.run(ask).everything, 30.0, "the cell's end")
    finally:
        kernel.close()
