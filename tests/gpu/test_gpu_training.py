"""Rank groups on GPUs under nccl: right results, own devices, restarts."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from jupyter_ddl import search, train
from jupyter_ddl.client.group import open_group
from jupyter_ddl.client.run import Run
from jupyter_ddl.errors import CaptureError
from jupyter_ddl.ledger.audit import audit
from jupyter_ddl.protocol.events import (
    AttemptFinished,
    CheckpointSaved,
    Failure,
    Notice,
    RankStarted,
    Reported,
)
from tests.until import until

pytestmark = [pytest.mark.gpu, pytest.mark.integration]

STEPS = """
import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(5)
inputs = torch.randn(160, 6, dtype=torch.float64)
targets = torch.randn(160, 3, dtype=torch.float64)
model = torch.nn.Sequential(
    torch.nn.Linear(6, 13), torch.nn.Tanh(), torch.nn.Linear(13, 3)
).to(torch.float64)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
loader = DataLoader(TensorDataset(inputs, targets), batch_size=16 // world_size(), shuffle=True)
model, optimizer, loader = prepare(model, optimizer, loader)
step, losses = 0, []
while step < 20:
    for batch, wanted in loader:
        step += 1
        optimizer.zero_grad()
        loss = ((model(batch.to(device())) - wanted.to(device())) ** 2).mean()
        loss.backward()
        optimizer.step()
        report(step=step, reduce="mean", loss=loss)
        if step == 20:
            break
used = str(next(model.parameters()).device)
"""

WHERE = """
import os
import torch
import torch.distributed as dist
ones = torch.ones(3).cuda()
dist.all_reduce(ones)
[
    str(device()),
    str(ones.device),
    torch.cuda.device_count(),
    os.environ["CUDA_VISIBLE_DEVICES"].split(",")[torch.cuda.current_device()],
    dist.get_backend(),
    ones[0].item(),
]
"""

ENDLESS = """
import time
import torch
import torch.distributed as dist
state = resume() or {"epoch": -1}
for epoch in range(state["epoch"] + 1, 1000):
    total = torch.ones(4, device=device())
    dist.all_reduce(total)
    torch.cuda.synchronize()
    report(step=epoch, size=float(total[0]))
    checkpoint(step=epoch, epoch=epoch, total=total)
    time.sleep(0.05)
"""

LOCKING = """
import fcntl, os
import torch
from jupyter_ddl import choice, report
x = choice(1, 2, 3, 4, 5, 6, 7, 8)
(uuid,) = os.environ["CUDA_VISIBLE_DEVICES"].split(",")
held = open(f"{LOCKS}/{uuid}", "w")
fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
a = torch.full((2000, 2000), 1.0, device="cuda")
for step in range(3):
    a = (a @ a) / 2000
    report(step=step, score=float(a[0, 0]) * x)
"""


def _losses(run: Run) -> list[float]:
    reports = [e for e in run.events() if isinstance(e, Reported) and e.rank == 0]
    return [event.metrics["loss"] for event in reports]


def _trained(n_ranks: int, **options: Any) -> Run:
    return train(STEPS, n_ranks, namespace={}, seed=3, bring=("model", "used"), **options)


def _assert_same(run: Run, reference: Run) -> None:
    import torch

    # 64 bits: errors of 2**-53 (1e-16) in sums that a GPU adds in another order, amplified by 20
    # steps of Adam by less than 1e5.
    assert _losses(run) == pytest.approx(_losses(reference), rel=1e-10)
    expected = reference.value("model").state_dict()
    for name, value in run.value("model").state_dict().items():
        torch.testing.assert_close(value.cpu(), expected[name].cpu(), atol=1e-10, rtol=1e-10)


def _failures(run: Run) -> list[Failure | None]:
    return [e.failure for e in run.events() if isinstance(e, AttemptFinished) and e.failure]


def test_one_rank_on_a_gpu_trains_as_on_the_cpu(cluster: object) -> None:
    reference = _trained(1, gpus_per_rank=0)
    assert reference.value("used") == "cpu"
    run = _trained(1, gpus_per_rank=1)
    assert run.value("used") == "cuda:0"
    _assert_same(run, reference)


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_two_ranks_on_two_gpus_train_like_one_process(cluster: object, strategy: str) -> None:
    reference = _trained(1, gpus_per_rank=0)
    _assert_same(_trained(2, backend="nccl", strategy=strategy), reference)


@pytest.mark.parametrize("strategy", ["ddp", "fsdp", "dp"])
def test_strategies_work_under_nccl_with_one_rank(cluster: object, strategy: str) -> None:
    _assert_same(_trained(1, backend="nccl", strategy=strategy), _trained(1, gpus_per_rank=0))


def test_a_rank_sees_its_gpu_by_uuid_and_nccl_is_chosen(cluster: object) -> None:
    run = train(WHERE, 1, namespace={})
    ((where, tensor, n_seen, uuid, backend, total),) = run.values
    assert (where, tensor, n_seen, backend, total) == ("cuda:0", "cuda:0", 1, "nccl", 1.0)
    assert uuid.startswith(("GPU-", "MIG-"))
    (started,) = [event for event in run.events() if isinstance(event, RankStarted)]
    assert started.device.startswith("cuda ")
    assert started.device.split()[1] == "-".join(uuid.split("-")[:2])


OWN_GROUPS = """
import torch
import torch.distributed as dist
totals = []
for backend in ("cpu:gloo,cuda:nccl", "nccl", "cpu:gloo,cuda:nccl"):
    dist.init_process_group(backend, device_id=device())
    for where in ("cuda", "cpu")[: 1 + ("gloo" in backend)]:
        ones = torch.ones(3, device=where)
        dist.all_reduce(ones)
        totals.append(float(ones.sum()))
    dist.destroy_process_group()
totals
"""


def test_code_ends_process_groups_of_its_own(cluster: object) -> None:
    """NCCL connects to itself to end a communicator, gloo's sockets answer nobody."""
    run = train(OWN_GROUPS, 1, namespace={}, backend="nccl")
    assert run.values == [[3.0] * 5]
    told = [event.text for event in run.events() if isinstance(event, Notice)]
    assert not any("destroy_process_group" in text for text in told), told


@pytest.mark.usefixtures("own_gpus")
def test_two_ranks_have_a_gpu_each(cluster: object) -> None:
    first, second = train(WHERE, 2, namespace={}, gpus_per_rank=1).values
    assert [first[0], second[0]] == ["cuda:0", "cuda:1"]
    assert [first[1], second[1]] == ["cuda:0", "cuda:1"], "`.cuda()` means the rank's own"
    assert first[3] != second[3]
    assert first[5] == second[5] == 2.0


def test_a_rank_without_a_gpu_stays_on_the_cpu(cluster: object) -> None:
    cell = "import torch\nimport torch.distributed as dist\n[str(device()), dist.get_backend()]"
    run = train(cell, 2, namespace={}, gpus_per_rank=0)
    assert run.values == [["cpu", "gloo"]] * 2


def test_a_kernel_that_has_touched_cuda_changes_nothing(cluster: object) -> None:
    import torch

    mine = torch.ones(1000, device="cuda")
    run = train(WHERE, 1, namespace={})
    assert run.values[0][0] == "cuda:0"
    assert float(mine.sum()) == 1000.0


def test_a_captured_cuda_tensor_is_refused_with_what_to_do(cluster: object) -> None:
    """A trial elsewhere may see another GPU under that name, or none."""
    import torch

    weights = torch.arange(4.0, device="cuda")
    with pytest.raises(CaptureError, match=r"weights .* on device cuda:0 .*\.cpu\(\)"):
        train("weights.sum()", 1, namespace={"weights": weights}, gpus_per_rank=1)


def test_a_killed_rank_comes_back_from_its_checkpoint(cluster: object) -> None:
    _kill_and_resume(1)


@pytest.mark.usefixtures("two_gpus")
def test_a_killed_rank_of_two_comes_back_from_its_checkpoint(cluster: object) -> None:
    _kill_and_resume(2)


def _kill_and_resume(n_ranks: int) -> None:
    run = train(ENDLESS, n_ranks, namespace={}, backend="nccl", wait=False, max_restarts=5)

    def of(kind: type[Any], attempt: int) -> list[Any]:
        return [e for e in run.events() if isinstance(e, kind) and e.attempt == attempt]

    for attempt in (1, 2):
        until(lambda a=attempt: len(of(CheckpointSaved, a)) > 3, 60.0, "checkpoints")
        pids = [event.pid for event in of(RankStarted, attempt)]
        saved = of(CheckpointSaved, attempt)[-1].step
        os.kill(pids[-1], signal.SIGKILL)
        reports = until(lambda a=attempt: of(Reported, a + 1), 60.0, "the next round")
        assert reports[0].step >= saved + 1
        assert not any(map(psutil.pid_exists, pids))
    run.cancel("now")
    until(lambda: run.snapshot().finished_at_s, 20.0, "the end")
    assert all(failure.type_name == "SIGKILL" for failure in _failures(run) if failure)
    assert audit(run.events()) == []


def test_no_two_trials_are_on_one_gpu_at_a_time(cluster: object, tmp_path: Path) -> None:
    cell = f"LOCKS = {str(tmp_path)!r}\n{LOCKING}"
    run = search(
        cell, namespace={}, metric="score", sampler="random", trials=8, gpus_per_trial=1, seed=1
    )
    assert run.snapshot().counts.complete == 8, _failures(run)


FILLING = """
import torch
from jupyter_ddl import choice, report
n_bytes = choice(1 << 20, 1 << 50)
held = []
while sum(map(len, held)) < n_bytes:
    held.append(torch.empty(min(n_bytes, 1 << 30), dtype=torch.uint8, device="cuda"))
report(step=0, score=float(torch.cuda.memory_allocated() >= n_bytes))
"""


def test_a_trial_that_fills_its_gpu_fails_for_memory_and_the_next_one_has_all_of_it(
    cluster: object,
) -> None:
    run = search(
        FILLING, namespace={}, metric="score", sampler="grid", gpus_per_trial=1, max_failures=1
    )
    counts = run.snapshot().counts
    assert (counts.complete, counts.failed) == (1, 1)
    (failure,) = _failures(run)
    assert failure is not None
    assert (failure.kind, failure.type_name) == ("memory", "OutOfMemoryError")
    # The rank that filled it is gone, and its memory with it.
    assert train(WHERE, 1, namespace={}, gpus_per_rank=1).values[0][5] == 1.0


def test_persistent_ranks_keep_tensors_on_their_gpu(cluster: object) -> None:
    with open_group(1, gpus_per_rank=1) as group:
        group.execute("import torch\nkept = torch.ones(4, device=device())")
        seen = group.execute("[str(kept.device), float(kept.sum())]")
        assert seen.values == [["cuda:0", 4.0]]
