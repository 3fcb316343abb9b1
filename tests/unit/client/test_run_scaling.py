"""``run.scaling()``, its plot and what a dry run guesses, from records on disk."""

from __future__ import annotations

import math
import re

import pytest

from jupyter_ddl.client.run import Run
from jupyter_ddl.client.scaling import first_guess
from jupyter_ddl.errors import OptionError
from jupyter_ddl.ledger.writer import LedgerWriter
from jupyter_ddl.protocol.events import (
    AttemptStarted,
    RankStarted,
    RunStarted,
    RunSubmitted,
    StepsTimed,
    TrialCreated,
)
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.store.paths import ledger_path, private_dir, run_dir
from jupyter_ddl.verbs.ddp import Ddp
from tests.leaks import Home


def spec_of(run_id: str, n_ranks: int, source: str = "train()") -> RunSpec:
    return RunSpec(run_id, Ddp(n_ranks), Program(source, "In [1]"), 7, "local", 1000.0)


def record(run_id: str, n_ranks: int, *, source: str = "train()", n_steps: int = 50) -> None:
    """10 ms of a rank's own, and 2 ms for each further rank."""
    exchange_s = 0.002 * (n_ranks - 1)
    private_dir(run_dir(run_id))
    with LedgerWriter.open(ledger_path(run_id), create=True) as ledger:
        ledger.append(
            [
                RunSubmitted(spec_of(run_id, n_ranks, source), 1.0),
                RunStarted(1.0, 1, n_ranks, 1, 1),
                TrialCreated(0, {}, 1.0),
                AttemptStarted(0, 1, 1.0, "w0", 10, "a.log", 0),
                *(RankStarted(0, 1, r, 1.0, f"w{r}", f"h{r}", 1, "a.log", 0)
                  for r in range(n_ranks)),
                *(
                    StepsTimed(
                        trial=0, attempt=1, rank=r, at_s=2.0, n_steps=n_steps,
                        step_s=n_steps * (0.01 + exchange_s), data_s=0.0,
                        exchange_s=n_steps * exchange_s, n_samples=32 * n_steps,
                        gradient_bytes=1 << 20, n_cpus=1,
                    )
                    for r in range(n_ranks)
                ),
            ]
        )  # fmt: skip


def test_runs_of_three_sizes_become_a_table_with_its_error_and_a_plot(home: Home) -> None:
    for n_ranks in (1, 2, 4):
        record(f"size-{n_ranks}", n_ranks)
    run = Run("size-1")
    table = run.scaling("size-2", Run("size-4"))
    assert list(table) == ["ranks", "strategy", "efficiency", "error", "basis"]
    ddp = table[table.strategy == "ddp"].set_index("ranks")
    assert list(ddp.index) == [2, 4, 8, 16, 32, 64]
    assert ddp.efficiency[4] == pytest.approx(10 / 16, abs=0.02)
    assert 0 < ddp.error[2] < 0.2  # 1 and 4 ranks can't tell messages from bytes
    assert math.isnan(ddp.error[8])
    by_basis = {basis: set(rows.strategy) for basis, rows in table.groupby("basis")}
    estimated = {"pipeline", "ps-sync", "ps-async", "local-sgd", "diloco"}
    assert by_basis == {"fit": {"ddp", "fsdp"}, "estimate": estimated}
    assert set(table.attrs["assumed"]) == estimated
    assert table.attrs["fastest"][4] == "local-sgd"
    assert table.attrs["best"][4] in {"ddp", "pipeline"}
    plot = run.plot.scaling(runs=["size-2", "size-4"])
    # What is the same at every size is one line.
    drawn = {"pipeline", "ps-sync", "ps-async", "local-sgd, diloco"}
    assert {"ddp", "fsdp"} | drawn == set(plot.chart.series)
    faint, fits, _ = plot.chart.panels[0].layers
    assert faint.is_faint
    assert {mark.series for mark in faint.marks} == drawn
    assert {mark.series for mark in fits.marks} == {"ddp", "fsdp"}
    assert all("an estimate that assumes" in mark.label for mark in faint.marks)
    assert "local-sgd and diloco assumes --sync-every 8" in plot.chart.note
    assert "efficiency predicted of 4 ranks" in repr(plot)
    assert plot.svg.startswith("<svg")


def test_runs_of_other_cells_are_refused(home: Home) -> None:
    record("mine", 1)
    record("other", 2, source="something_else()")
    with pytest.raises(OptionError, match="run other is of another cell than run mine; expected"):
        Run("mine").scaling("other")


def test_a_dry_run_guesses_by_earlier_runs_of_its_cell(home: Home) -> None:
    (none,) = first_guess(spec_of("new", 4))
    assert none.startswith("Scaling: no run of this cell has told of its steps")
    record("other", 2, source="something_else()")
    record("short", 2, n_steps=3)
    assert first_guess(spec_of("new", 4)) == [none]
    record("size-1", 1)
    record("size-2", 2)
    line, *notes = first_guess(spec_of("new", 4))
    assert line.startswith("Scaling: by 2 runs of this cell on 1, 2 ranks, the best strategy for ")
    assert re.search(r"for 2 ranks \(\d+ % by (ddp|pipeline, an estimate)\), 4 ranks \(", line)
    assert notes
