"""Reports, the objective, and the ways in which an attempt may end."""

from __future__ import annotations

import math
import sys
from typing import Any

import pytest

from jupyter_ddl.protocol.events import Notice, Reported
from jupyter_ddl.ranks.stopping import TrialStopped


def test_the_last_reported_value_is_the_objective(host: Any) -> None:
    rank = host.load("report(acc=0.25)\nreport(acc=0.5, loss=1)\nacc = 9.0\n", metric="acc")
    finished = rank.run()
    assert (finished.outcome, finished.value) == ("complete", 0.5)
    reports = rank.of(Reported)
    assert [(each.step, each.metrics) for each in reports] == [
        (0, {"acc": 0.25}),
        (1, {"acc": 0.5, "loss": 1.0}),
    ]


STEPS = """
state = resume() or {"step": -1}
for step in range(state["step"] + 1, 3):
    report(step=step, acc=step / 2)
    checkpoint(step=step)
assert SEEN
"""


def test_what_was_reported_before_the_last_checkpoint_counts_when_no_step_is_left(
    host: Any,
) -> None:
    rank = host.load(STEPS.replace("SEEN", "state['step'] == 2"), metric="acc")
    assert rank.run().outcome == "failed"  # killed behind its last checkpoint, say
    finished = rank.run(attempt=2)
    assert (finished.outcome, finished.value) == ("complete", 1.0)
    assert [each.attempt for each in rank.of(Reported)] == [1, 1, 1]


def test_a_checkpoint_before_the_report_of_its_step_makes_up_no_value(host: Any) -> None:
    swapped = (
        "state = resume() or {'step': -1}\n"
        "for step in range(state['step'] + 1, 2):\n"
        "    checkpoint(step=step)\n"
        "    assert step == 0 or state['step'] == 1\n"
        "    report(step=step, acc=step / 2)\n"
    )
    rank = host.load(swapped, metric="acc")
    assert rank.run().outcome == "failed"
    finished = rank.run(attempt=2)
    assert finished.failure is not None
    assert finished.failure.kind == "metric"


def test_the_final_value_of_the_name_counts_when_nothing_was_reported(host: Any) -> None:
    rank = host.load("import numpy as np\nacc = np.float32(0.5)\n", metric="acc")
    assert rank.run().value == 0.5


@pytest.mark.parametrize(
    "expression",
    [
        "3",
        "np.int64(3)",
        "np.float16(3)",
        "np.array(3.0)",
        "np.array([3.0])",
        "torch.tensor(3.0)",
        "torch.tensor([[3]])",
        "torch.nn.Parameter(torch.tensor(3.0))",
        "fractions.Fraction(3)",
        "decimal.Decimal(3)",
    ],
)
def test_numbers_of_every_kind_are_accepted(host: Any, expression: str) -> None:
    imports = "import numpy as np, torch, fractions, decimal\n"
    rank = host.load(f"{imports}v = {expression}\nreport(v=v)\n", metric="v")
    assert rank.run().value == 3.0


@pytest.mark.parametrize(
    ("expression", "shown"),
    [
        ("'abc'", "'abc' (str)"),
        ("None", "None (NoneType)"),
        ("True", "True (bool)"),
        ("np.True_", "np.True_ (bool)"),
        ("torch.tensor(True)", "tensor(True) (Tensor)"),
        ("1j", "1j (complex)"),
        ("np.ones(2)", "array([1., 1.]) (ndarray)"),
        ("float('nan')", "nan (float)"),
        ("-float('inf')", "-inf (float)"),
        ("10**400", "(int)"),
    ],
)
def test_other_objectives_fail_and_are_shown(host: Any, expression: str, shown: str) -> None:
    rank = host.load(f"import numpy as np, torch\nval_acc = {expression}\n", metric="val_acc")
    finished = rank.run()
    assert finished.outcome == "failed"
    assert finished.value is None
    assert finished.failure.kind == "metric"
    assert finished.failure.message.startswith("metric 'val_acc' is ")
    assert finished.failure.message.endswith(f"{shown}; expected a finite number")


def test_a_missing_objective_names_what_was_seen(host: Any) -> None:
    rank = host.load("report(loss=1)\nacc = 2.0\nname = 'x'\n_hidden = 3\n", metric="val_acc")
    failure = rank.run().failure
    assert failure.kind == "metric"
    assert failure.message == (
        "no value named 'val_acc' was reported or assigned; names seen: loss, acc"
    )


def test_a_report_that_is_no_number_fails_with_its_line(host: Any) -> None:
    failure = host.load("\n\nreport(acc='high')\n", metric="acc").run().failure
    assert failure.kind == "exception"
    assert failure.message == "metric 'acc' is 'high' (str); expected a number"
    assert failure.line == 3


def test_a_nan_is_kept_but_fails_as_the_objective(host: Any) -> None:
    nan = float("nan")
    rank = host.load("report(loss=float('nan'))\n", metric="loss")
    failure = rank.run().failure
    assert failure.kind == "metric"
    assert failure.message == "metric 'loss' is nan at step 0; expected a finite number"
    assert math.isnan(rank.of(Reported)[0].metrics["loss"])
    other = host.load(f"report(loss=float('{nan}'), acc=1)\n", metric="acc")
    assert other.run().outcome == "complete"


def test_steps_must_grow_and_both_are_named(host: Any) -> None:
    rank = host.load("report(step=5, a=1)\nreport(step=5, b=1)\n", metric="a")
    failure = rank.run().failure
    assert "report(step=5) came after report(step=5)" in failure.message
    assert (failure.kind, failure.line) == ("exception", 2)


def test_automatic_steps_go_on_from_the_last_one(host: Any) -> None:
    rank = host.load("report(step=5, a=1)\nreport(a=2)\n", metric="a")
    rank.run()
    assert [each.step for each in rank.of(Reported)] == [5, 6]


def test_a_step_that_is_no_whole_number_is_refused(host: Any) -> None:
    failure = host.load("report(step=1.5, a=1)\n", metric="a").run().failure
    assert failure.message == "report(step=…) is 1.5 (float); expected a whole number"


def test_no_report_is_dropped_however_fast_they_come(host: Any) -> None:
    rank = host.load("for i in range(5000):\n    report(a=i)\n", metric="a")
    assert rank.run().value == 4999
    assert len(rank.of(Reported)) == 5000


def test_a_pruned_attempt_ends_at_its_next_report_with_its_value(host: Any) -> None:
    rank = host.load("for i in range(9):\n    report(a=i)\nprint('not reached')\n", metric="a")

    def emit(event: Any) -> None:
        rank.events.append(event)
        if isinstance(event, Reported) and event.step == 3:
            rank.stop.request(0, 1, "pruned")

    finished = rank.run(emit=emit)
    assert (finished.outcome, finished.value, finished.failure) == ("pruned", 3.0, None)
    assert len(rank.of(Reported)) == 4


def test_a_stop_of_another_attempt_is_ignored(host: Any) -> None:
    rank = host.load("report(a=1)\n", metric="a")
    rank.stop.request(0, 1, "pruned")
    assert rank.run(attempt=2).outcome == "complete"


def test_a_stop_runs_the_finally_blocks_of_the_cell(host: Any) -> None:
    rank = host.load("try:\n    report(a=1)\nfinally:\n    report(step=9, b=1)\n", metric="a")
    rank.stop.request(0, 1, "cancelled")
    assert rank.run().outcome == "cancelled"
    assert [each.step for each in rank.of(Reported)] == [0, 9]


@pytest.mark.parametrize(
    ("statement", "outcome"),
    [
        ("raise SystemExit", "complete"),
        ("import sys; sys.exit(0)", "complete"),
        ("import sys; sys.exit(3)", "failed"),
        ("import sys; sys.exit('gone')", "failed"),
        ("raise KeyboardInterrupt", "cancelled"),
        ("raise GeneratorExit", "failed"),
    ],
)
def test_exits_and_interrupts_have_their_outcomes(host: Any, statement: str, outcome: str) -> None:
    finished = host.load(f"report(a=1)\n{statement}\n", metric="a").run()
    assert finished.outcome == outcome
    assert finished.value == (None if outcome == "failed" else 1.0)


def test_a_failing_cleanup_is_noticed_and_does_not_fail_the_trial(host: Any) -> None:
    source = (
        "import sys\n"
        "class Broken:\n"
        "    closed = False\n"
        "    def write(self, text): pass\n"
        "    def flush(self): raise RuntimeError('stuck')\n"
        "sys.stdout = Broken()\nacc = 1\n"
    )
    rank = host.load(source, metric="acc")
    stdout = sys.stdout
    assert rank.run().outcome == "complete"
    assert [each.text for each in rank.of(Notice)] == [
        "cleaning up after a trial failed: RuntimeError: stuck"
    ]
    assert sys.stdout is stdout


@pytest.mark.forks
def test_a_report_from_a_forked_child_is_refused(host: Any) -> None:
    source = (
        "import os\n"
        "read, write = os.pipe()\n"
        "if (pid := os.fork()) == 0:\n"
        "    try:\n"
        "        report(a=1)\n"
        "    except ValueError as error:\n"
        "        os.write(write, str(error).encode())\n"
        "    os._exit(0)\n"
        "os.waitpid(pid, 0)\n"
        "text = os.read(read, 1000).decode()\n"
        "os.close(read); os.close(write)\n"
        "a = 1 if 'a child of the trial' in text else 0\n"
    )
    rank = host.load(source, metric="a")
    assert rank.run().value == 1
    assert rank.of(Reported) == []


def test_a_channel_that_breaks_fails_the_attempt_only(host: Any) -> None:
    def emit(_event: Any) -> None:
        raise BrokenPipeError("worker gone")

    assert host.load("report(a=1)\n", metric="a").run(emit=emit).outcome == "failed"


def test_a_stop_signal_between_lines_is_an_outcome(host: Any) -> None:
    captures = {"stop": lambda: (_ for _ in ()).throw(TrialStopped("cancelled"))}
    finished = host.load("report(a=2)\nstop()\n", captures=captures, metric="a").run()
    assert (finished.outcome, finished.value) == ("cancelled", 2.0)
