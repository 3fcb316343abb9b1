"""What ranks report, log and send home."""

from __future__ import annotations

import numpy
import pytest
import torch

from jupyter_ddl import train
from jupyter_ddl.errors import RunFailedError, TrialError
from jupyter_ddl.protocol.events import Notice

pytestmark = pytest.mark.integration

METRICS = """
import numpy
import torch
values = numpy.random.default_rng(rank()).normal(size=(5, 4))
for step, (a, b, c, d) in enumerate(values):
    report(step=100 * (step + 1) - 1, a=a)
    for offset, how in enumerate(("mean", "sum", "max", "min")):
        report(step=100 * (step + 1) + offset, reduce=how, **{how: b, "loss": torch.tensor(c)})
"""

VALUES = """
import threading
import torch
history = {"rank": rank(), "loss": torch.ones(2) * rank()}
model = prepare(torch.nn.Linear(3, 2))
nested = [model]
log("made", 1)
RESULT
"""


def test_metrics_are_reduced_as_numpy_does_and_rank_0_speaks_for_the_run(cluster: object) -> None:
    run = train(METRICS, 2, namespace={})
    values = numpy.array([numpy.random.default_rng(rank).normal(size=(5, 4)) for rank in range(2)])
    metrics = run.metrics
    of_rank_0 = metrics[metrics["rank"] == 0].set_index("step")
    for step in range(5):
        at = 100 * (step + 1)
        assert of_rank_0["a"][at - 1] == values[0, step, 0]
        for offset, how in enumerate(("mean", "sum", "max", "min")):
            expected = getattr(numpy, how)(values[:, step], axis=0)
            # Two numbers in 64 bits: at most one rounding.
            assert of_rank_0[how][at + offset] == pytest.approx(expected[1], rel=1e-15)
            assert of_rank_0["loss"][at + offset] == pytest.approx(expected[2], rel=1e-15)


def test_ranks_that_reduce_different_metrics_are_told(cluster: object) -> None:
    cell = "import torch\nreport(reduce='sum', **{'loss' if rank() else 'accuracy': 1.0})"
    with pytest.raises(RunFailedError, match="every rank must report the same names"):
        train(cell, 2, namespace={}, max_restarts=0)


def test_every_ranks_values_come_home_plain(cluster: object) -> None:
    for strategy in ("ddp", "fsdp"):
        cell = VALUES.replace("RESULT", "(rank(), float(sum(p.sum() for p in model.parameters())))")
        run = train(cell, 2, namespace={}, strategy=strategy, bring=("history", "model", "nested"))
        for rank in range(2):
            assert run.value("history", rank=rank)["rank"] == rank
            assert run.value("history", rank=rank)["loss"].tolist() == [rank, rank]
            model = run.value("model", rank=rank)
            assert type(model) is torch.nn.Linear
            assert type(model.weight) is torch.nn.Parameter
            assert model(torch.ones(1, 3)).shape == (1, 2)
            assert type(run.value("nested", rank=rank)[0]) is torch.nn.Linear
        assert torch.equal(run.value("model").weight, run.value("model", rank=1).weight)
        assert [value[0] for value in run.values] == [0, 1]
        assert set(run.bring()) == {"history", "model", "nested"}
        assert "[rank 1] " in run.logs(1)
    with pytest.raises(TrialError, match="rank 5 of trial 0 brought nothing"):
        run.value("model", rank=5)
    with pytest.raises(TrialError, match="not 'lost'; add `--bring lost`"):
        run.value("lost")


def test_a_result_that_cannot_be_pickled_is_none_with_a_notice(cluster: object) -> None:
    cell = VALUES.replace("RESULT", "threading.Lock()")
    run = train(cell, 2, namespace={}, bring=("history",))
    assert run.values == [None, None]
    assert run.value("history", rank=1)["rank"] == 1
    notices = [event.text for event in run.events() if isinstance(event, Notice)]
    (text,) = (text for text in notices if "did not come back" in text)
    assert text.startswith("the cell's value on ranks 0-1 did not come back: ")
    assert "cannot be pickled" in text
    bring_it = "import threading\nlock = threading.Lock()"
    with pytest.raises(RunFailedError, match=r"brought value 'lock' is .*cannot be pickled"):
        train(bring_it, 2, namespace={}, bring=("lock",), max_restarts=0)
