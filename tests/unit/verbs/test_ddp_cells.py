"""Cells of ``%%distribute ddp``: compiled as they are, checked before anything starts."""

from pathlib import Path

import numpy as np
import pytest

from jupyter_ddl.cell.draft import CellContext
from jupyter_ddl.cell.dry_run import describe
from jupyter_ddl.errors import CellError, OptionError
from jupyter_ddl.verbs.ddp import Ddp
from tests.unit.cell.cell_makers import compiled, notebook

CELL = "lr = loguniform(1e-4, 1e-1)\nacc = lr * X.sum()\nreport(step=0, acc=acc)\n"


def test_a_ddp_cell_is_the_search_cell_with_another_first_line():
    found = compiled("ddp -n 2 --bring acc --timeout 1m", CELL, notebook(X=np.ones(3)))
    assert found.spec.verb == Ddp(n_ranks=2)
    assert found.spec.program.source == "\n" + CELL
    assert found.spec.program.placeholders == ()
    assert [each.name for each in found.spec.program.captures] == ["X"]
    assert found.spec.bring == ("acc",)
    assert found.spec.limits.timeout_s == 60


def test_a_group_that_restarts_three_times_may_fail_four_times():
    assert compiled("ddp -n 2", "1").spec.limits.max_own_failures == 4
    assert compiled("ddp -n 2 --max-restarts 0", "1").spec.limits.max_own_failures == 1


def test_nccl_means_a_gpu_per_rank_unless_the_line_says_otherwise():
    assert compiled("ddp -n 2 --backend nccl", "1").spec.verb.gpus_per_rank == 1
    assert compiled("ddp -n 2 --backend nccl --gpus-per-rank 2", "1").spec.verb.gpus_per_rank == 2
    assert compiled("ddp -n 2", "1").spec.verb.gpus_per_rank is None


def test_a_name_to_bring_that_the_cell_never_assigns_is_refused():
    with pytest.raises(CellError, match=r"--bring modle: .* never assigns 'modle'.*'model'"):
        compiled("ddp -n 2 --bring modle", "model = 1")


@pytest.mark.parametrize(
    ("cell", "code"),
    [
        ("checkpoint(step=1, a=2)", ""),
        ("import jupyter_ddl\njupyter_ddl.checkpoint(a=1)", ""),
        ("train()", "def train():\n    return [checkpoint(x=i) for i in range(2)]"),
    ],
)
def test_a_cell_that_saves_checkpoints_may_shrink_without_a_note(cell, code):
    namespace = notebook(code)
    assert compiled("ddp -n 2 --min-ranks 1", cell, namespace).notes == ()


def test_a_cell_without_checkpoints_that_may_shrink_gets_a_note():
    (note,) = compiled("ddp -n 2 --min-ranks 1", "x = 1").notes
    assert "never calls checkpoint(…)" in note
    assert compiled("ddp -n 2 --min-ranks 2", "x = 1").notes == ()
    # Its other ranks join in the middle of a round.
    assert compiled("ddp -n 2 --min-ranks 1 --strategy diloco", "x = 1").notes == ()


def test_a_dry_run_tells_ranks_group_and_restarts_and_the_places_it_is_given():
    found = compiled("ddp -n 4 --min-ranks 2 --no-init --hang-timeout 90s", "x = 1")
    text = describe(found, ["Places now: rank 0 → local-0"])
    assert "Ranks: 4, at least 2; GPUs per rank: 1 if the workers have as many" in text
    assert "not initialised for the cell; prepare() uses ddp" in text
    assert "Restarts: at most 3; a hang is 1 min 30 s without a step" in text
    assert "Places now: rank 0 → local-0" in text


TRAINS = "import torch\noptimizer = torch.optim.SGD([torch.zeros(1)], lr=0.1)\nreport(acc=1)\n"


@pytest.mark.parametrize(
    "line", ["ddp -n 2", "search --metric acc --trials 2", "map --over range(3)"]
)
def test_steps_are_profiled_where_a_cell_trains(line):
    cell = ("lr = choice(1, 2)\n" if line.startswith("search") else "") + TRAINS
    found = compiled(f"{line} --profile 5", cell)
    assert found.spec.profile == 5
    assert "Profile: 5 steps of each rank, of the first 4 trials" in describe(found)
    assert not compiled(line, cell).spec.profile


@pytest.mark.parametrize(
    ("line", "cell", "text"),
    [
        ("ddp -n 2 --profile 0", TRAINS, "'0'; expected a whole number from 1 to 100"),
        ("ddp -n 2 --profile -3", TRAINS, "expected a whole number from 1 to 100"),
        ("ddp -n 2 --profile many", TRAINS, "'many'; expected a whole number from 1 to 100"),
        ("ddp -n 2 --profile 3", "acc = 1", "the cell imports nothing, expected torch"),
        ("run --profile 3", TRAINS, "--profile"),
        ("fit --profile 3", TRAINS, "--profile"),
    ],
)
def test_steps_that_nobody_knows_are_refused_in_a_line(line, cell, text):
    with pytest.raises(OptionError) as caught:
        compiled(line, cell)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("n_steps", [0, -1, 101, 2.5, True])
def test_steps_from_python_are_checked_as_on_the_line(n_steps):
    line = Ddp.from_python({"n_ranks": 2, "profile": n_steps})
    with pytest.raises(OptionError, match="expected a whole number from 1 to 100"):
        line.verb.compile(TRAINS, notebook(), CellContext(3, Path("/nonexistent")), line.options)


def test_buckets_are_tuned_only_in_a_cell_that_makes_steps():
    by_step = compiled("ddp -n 2 --tune-buckets", "step = prepare_step(1, 2, 3)")
    assert "prepare() uses ddp --tune-buckets\n" in describe(by_step)
    assert by_step.spec.verb.ranks.strategy_options == {"tune_buckets": True}
    with pytest.raises(OptionError, match=r"which the cell never calls; write step = prepare_step"):
        compiled("ddp -n 2 --tune-buckets", "model = prepare(1)")


def test_a_dry_run_says_whose_batch_a_loaders_batch_size_is():
    by_hand = describe(compiled("ddp -n 2", "loader = prepare(1)"))
    assert "batch_size is that of each rank\n" in by_hand
    by_step = describe(compiled("ddp -n 2", "step = prepare_step(1, 2, 3)"))
    assert "batch_size is that of all ranks together: it calls prepare_step" in by_step
    assert "batch_size" not in describe(compiled("search --metric x", "x = uniform(0, 1)"))
