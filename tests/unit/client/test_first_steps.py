"""What a dry run guesses by a cell's first steps, and when it may make them."""

from __future__ import annotations

import re

import msgspec
import pytest

from jupyter_ddl.cell.draft import RunDraft
from jupyter_ddl.client import first_steps
from jupyter_ddl.client.first_steps import FirstSteps, guess_lines, scaling_now
from jupyter_ddl.errors import ClusterError
from jupyter_ddl.ledger.scaling import Measured
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.verbs.ddp import Ddp
from tests.leaks import Home

_MEASURED = Measured(
    run_id="first", strategy="ddp", n_ranks=1, n_samples=32, step_s=0.02, data_s=0.001,
    compute_s=0.019, waiting_s=None, exchange_s=None, gradient_bytes=4_000_000,
)  # fmt: skip


def _draft(*calls: str) -> RunDraft:
    program = Program("train()", "In [1]", own_calls=calls)
    return RunDraft(spec=RunSpec("new", Ddp(2), program, 7, "local", 1000.0))


def _efficiencies(line: str) -> list[int]:
    return [int(each) for each in re.findall(r"(\d+) %", line)]


def test_the_guess_says_what_is_measured_assumed_and_unsure() -> None:
    first, measured, assumed, unsure = guess_lines(_MEASURED, 7)
    two, two_low, two_high, four, *_ = _efficiencies(first)
    assert two_low < two < two_high
    assert four < two
    # Half of 20 ms, two messages of 50 µs, and 4 MB once through each rank at 1 GB/s.
    assert two == pytest.approx(100 * 10 / (10 + 0.1 + 4), abs=1)
    assert "7 plain steps on one rank of 32 samples, 20 ms each; 3.8 MiB of gradients" in measured
    assert "assumed: 50 µs a message and 953.7 MiB/s between ranks" in assumed
    assert "nothing of it was measured" in unsure


def test_slower_steps_make_more_ranks_worth_more() -> None:
    slow = msgspec.structs.replace(_MEASURED, step_s=0.2, compute_s=0.199)
    assert _efficiencies(next(guess_lines(slow, 5)))[0] > 95


@pytest.mark.parametrize("calls", [(), ("report",)])
def test_cells_without_prepare_step_are_not_begun(
    home: Home, monkeypatch: pytest.MonkeyPatch, calls: tuple[str, ...]
) -> None:
    monkeypatch.setattr(first_steps, "measure_first_steps", lambda *_: pytest.fail("begun"))
    (line,), was_begun = scaling_now(_draft(*calls), None)
    assert line.startswith("Scaling: no run of this cell has told of its steps")
    assert not was_begun


def test_without_a_cluster_nothing_is_begun(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_steps, "measure_first_steps", lambda *_: pytest.fail("begun"))
    (line,), was_begun = scaling_now(_draft("prepare_step"), None)
    assert line.startswith("Scaling: no run of this cell")
    assert not was_begun


def test_what_kept_the_steps_from_being_measured_is_said(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_steps, "_can_measure", lambda _: True)

    def refuse(*_: object) -> FirstSteps:
        raise ClusterError("the workers are gone")

    monkeypatch.setattr(first_steps, "measure_first_steps", refuse)
    assert scaling_now(_draft("prepare_step"), None) == (
        ["Scaling: the cell's first steps were not measured: the workers are gone"],
        False,
    )
    monkeypatch.setattr(
        first_steps, "measure_first_steps", lambda *_: FirstSteps(None, why="OSError: x")
    )
    (line,), was_begun = scaling_now(_draft("prepare_step"), None)
    assert line.endswith("tell nothing: OSError: x")
    assert was_begun
