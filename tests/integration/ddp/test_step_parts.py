"""What the steps of a real training are made of, measured by nobody's asking."""

from __future__ import annotations

import pytest

from jupyter_ddl import search, train
from jupyter_ddl.ledger.reducer import fold_all
from jupyter_ddl.ledger.snapshots import snapshot_of
from jupyter_ddl.protocol.events import StepsTimed
from jupyter_ddl.protocol.snapshot import RunSnapshot
from jupyter_ddl.protocol.view_messages import GetTrial
from jupyter_ddl.views.analysis import analysis_of

pytestmark = pytest.mark.integration

TRAINING = """
import time
import torch

class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 2 * 8 * 30
    def __getitem__(self, index):
        time.sleep(LOADING_S / 8)
        return torch.full((4,), float(index))

loader, model = prepare(
    torch.utils.data.DataLoader(Samples(), batch_size=8), torch.nn.Linear(4, 1)
)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
prepare(optimizer)
for batch in loader:
    loss = model(batch).mean()
    if rank() == 1:
        time.sleep(COMPUTING_S)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
with torch.no_grad():
    for number, batch in enumerate(loader):
        if number == 3:
            break
checkpoint(step=1, model=model)
"""


def trained(loading_s: float, computing_s: float) -> tuple[RunSnapshot, dict[int, StepsTimed]]:
    cell = TRAINING.replace("LOADING_S", str(loading_s)).replace("COMPUTING_S", str(computing_s))
    run = train(cell, 2, namespace={})
    state = fold_all(run.events())
    return snapshot_of(state, 0.0), state.ranks[0].steps


def test_a_loader_that_sleeps_is_named_with_what_to_try(cluster: object) -> None:
    snapshot, timed = trained(loading_s=0.16, computing_s=0.0)
    assert "of a step waits for data" in snapshot.step_verdict
    assert snapshot.step_verdict.endswith("try num_workers=2")
    for rank in (0, 1):
        # The first step has no step before it, and is not counted.
        assert timed[rank].n_steps == 29
        assert timed[rank].n_samples == 29 * 8
        assert timed[rank].data_s >= 29 * 0.16
        assert timed[rank].data_s <= timed[rank].step_s
        assert timed[rank].exchange_s is not None
        parts = snapshot.ranks[rank].parts
        assert parts is not None
        whole = parts.data_s + parts.compute_s + (parts.waiting_s or 0) + (parts.exchange_s or 0)
        assert whole == pytest.approx(parts.step_s)


def test_a_slow_rank_is_named_by_the_time_that_the_others_wait_for_it(cluster: object) -> None:
    snapshot, _ = trained(loading_s=0.0, computing_s=0.25)
    assert snapshot.step_verdict.startswith("rank 1 is slowest: the others wait")
    assert "it computes for" in snapshot.step_verdict
    first, slow = (snapshot.ranks[rank].parts for rank in (0, 1))
    assert first is not None
    assert slow is not None
    assert (first.waiting_s or 0.0) > (slow.waiting_s or 0.0)
    assert slow.compute_s > first.compute_s


BY_HAND = """
import torch
import torch.distributed as dist

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
for step in range(12):
    optimizer.zero_grad()
    model(torch.ones(8, 4)).mean().backward()
    if rank() == 1:
        time.sleep(0.2)
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
"""


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_collectives_that_python_calls_are_measured_as_those_of_ddp(
    cluster: object, strategy: str
) -> None:
    cell = "import time\n" + BY_HAND
    if strategy == "fsdp":
        cell = cell.replace("optimizer = ", "model = prepare(model)\noptimizer = ").replace(
            "        dist.all_reduce(parameter.grad)\n", "        pass\n"
        )
    snapshot = snapshot_of(fold_all(train(cell, 2, namespace={}, strategy=strategy).events()), 0.0)
    first, slow = (snapshot.ranks[rank].parts for rank in (0, 1))
    assert first is not None
    assert slow is not None
    assert first.exchange_s is not None
    assert (first.waiting_s or 0.0) > (slow.waiting_s or 0.0)
    assert slow.compute_s > first.compute_s


SEARCH = """
import time
import torch
from jupyter_ddl import choice, report

loading_s = choice(0.0, 0.03)

class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 8 * N_BATCHES
    def __getitem__(self, index):
        time.sleep(loading_s / 8)
        return torch.full((4,), float(index))

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
for batch in torch.utils.data.DataLoader(Samples(), batch_size=8):
    optimizer.zero_grad()
    model(batch).mean().backward()
    time.sleep(0.02)
    optimizer.step()
report(step=0, score=loading_s)
"""


def test_a_trial_of_a_search_tells_what_its_steps_waited_for(cluster: object) -> None:
    """One after another in the same process, of which each has its own steps."""
    cell = SEARCH.replace("N_BATCHES", "70")
    run = search(cell, namespace={}, metric="score", sampler="grid", max_parallel=1)
    told = {
        state.params["loading_s"]: analysis_of(run._fold(), GetTrial(1, run.id, number))().steps
        for number, state in run._fold().trials.items()
    }
    assert "of a step waits for data: try num_workers=2; " in told[0.03]
    assert told[0.03].endswith(" samples/s")
    assert told[0.0].endswith(" samples/s")  # what it waits for is the machine
    assert run._fold().n_late == 0


def test_of_a_trial_that_takes_a_moment_nothing_is_recorded(cluster: object) -> None:
    cell = SEARCH.replace("N_BATCHES", "10")
    run = search(cell, namespace={}, metric="score", sampler="grid")
    assert not any(isinstance(event, StepsTimed) for event in run.events())
    assert analysis_of(run._fold(), GetTrial(1, run.id, 0))().steps == ""
