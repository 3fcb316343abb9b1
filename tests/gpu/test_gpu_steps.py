"""``prepare_step`` on GPUs under nccl: each strategy trains what one process on the CPU does."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_ddl import train
from jupyter_ddl.client.run import Run

pytestmark = [pytest.mark.gpu, pytest.mark.integration]

STEPS = """
import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(5)
inputs = torch.randn(44, 6, dtype=torch.float64)
targets = torch.randn(44, 3, dtype=torch.float64)
model = torch.nn.Sequential(
    torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 16), torch.nn.Tanh(),
    torch.nn.Linear(16, 3),
).to(kind)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
step = prepare_step(model, torch.nn.functional.mse_loss, optimizer, accumulate=2, amp=amp)
loader = prepare(DataLoader(TensorDataset(inputs.to(kind), targets.to(kind)), batch_size=16))
losses = []
for epoch in range(4):
    for x, y in loader:
        loss = step(x, y)
        losses.append(loss.item())
    report(step=epoch, loss=losses[-1])
    checkpoint(step=epoch, model=model, optimizer=optimizer)
kinds = [str(device()).partition(":")[0], str(loss.device).partition(":")[0]]
kinds, losses
"""

ALONE: dict[str, dict[str, Any]] = {
    "ddp": {"strategy": "ddp"},
    "fsdp": {"strategy": "fsdp"},
    "dp": {"strategy": "dp"},
    "local-sgd": {"strategy": "local-sgd", "sync_every": 2},
    "pipeline": {"strategy": "pipeline", "microbatches": 2},
}
"""With which one rank trains what one process without a strategy does."""

TOGETHER: dict[str, dict[str, Any]] = {
    "ddp": {"strategy": "ddp"},
    "fsdp": {"strategy": "fsdp"},
    "tp": {"strategy": "fsdp", "mesh": "tp=2", "tp_plan": "plan"},
    "ps-sync": {"strategy": "ps-sync"},
    "ps-async": {"strategy": "ps-async"},
    "pipeline": {"strategy": "pipeline", "microbatches": 2},
    "interleaved": {"strategy": "pipeline", "microbatches": 2, "schedule": "interleaved"},
}
"""As do two ranks, of which one is a server where there are servers."""


def trained(n_ranks: int, *, on: str = "cuda", amp: str | None = None, **options: Any) -> Run:
    """A run on GPUs, one for each rank, or on the CPU."""
    where = {"gpus_per_rank": 1, "backend": "nccl"} if on == "cuda" else {"gpus_per_rank": 0}
    import torch

    namespace = {
        "plan": {"0": "colwise", "2": "rowwise"},
        "kind": torch.float64 if amp is None else torch.float32,
        "amp": amp,
    }
    options = {"namespace": namespace, "seed": 3, "bring": ["model"], **where, **options}
    return train(STEPS, n_ranks, **options)


def assert_same(run: Run, on: str = "cuda") -> None:
    """It has trained what one process on the CPU does."""
    import torch

    reference = trained(1, on="cpu")
    kinds, losses = run.values[0]
    assert kinds == [on, on]
    # 64 bits: errors of 2**-53 (1e-16) in sums that a GPU adds in another order, amplified by 12
    # steps of Adam by less than 1e5.
    assert losses == pytest.approx(reference.values[0][1], rel=1e-10)
    expected = reference.value("model").state_dict()
    for name, value in run.value("model").state_dict().items():
        torch.testing.assert_close(value.cpu(), expected[name].cpu(), atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("name", ALONE)
def test_a_step_on_a_gpu_is_that_on_the_cpu(cluster: object, name: str) -> None:
    assert_same(trained(1, **ALONE[name]))


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize("name", TOGETHER)
def test_a_step_on_two_gpus_is_that_of_one_process(cluster: object, name: str) -> None:
    assert_same(trained(2, **TOGETHER[name]))


@pytest.mark.usefixtures("two_gpus")
def test_ranks_that_meet_on_two_gpus_come_to_the_same(cluster: object) -> None:
    run = trained(2, strategy="local-sgd", sync_every=1)
    first, second = (each[1] for each in run.values)
    assert first != second, "the losses are of each one's own samples"
    reference = trained(2, on="cpu", strategy="local-sgd", sync_every=1)
    assert first == pytest.approx(reference.values[0][1], rel=1e-10)


UNWAITED = """
import torch

model = torch.nn.Linear(6, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
step = prepare_step(model, torch.nn.functional.mse_loss, optimizer, accumulate=2, clip_norm=1.0)
x, y = torch.randn(8, 6, device=device()), torch.randn(8, 3, device=device())
for _ in range(3):
    step(x, y)
torch.cuda.set_sync_debug_mode("error")
try:
    losses = [step(x, y) for _ in range(3)]
finally:
    torch.cuda.set_sync_debug_mode("default")
[float(loss) for loss in losses]
"""


@pytest.mark.parametrize("name", ["ddp", "fsdp", "local-sgd"])
def test_the_host_waits_for_nothing_of_a_step(cluster: object, name: str) -> None:
    """It queues the next one meanwhile; torch raises where a host waits for a GPU."""
    run = train(UNWAITED, 1, namespace={}, gpus_per_rank=1, backend="nccl", **ALONE[name])
    first, _, last = run.values[0]
    assert last < first


COMPRESSED = """
import torch

torch.manual_seed(5)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
step = prepare_step(model, torch.nn.functional.mse_loss, optimizer)
x, y = torch.randn(8, 64), torch.randn(8, 64)
[float(step(x, y)) for _ in range(20)]
"""


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize("compress", ["fp16", "bf16", "powersgd"])
def test_compressed_gradients_of_two_gpus_come_near_the_exact_ones(
    cluster: object, compress: str
) -> None:
    options: dict[str, Any] = {"namespace": {}, "gpus_per_rank": 1, "backend": "nccl"}
    run = train(COMPRESSED, 2, compress=compress, **options)
    exact = train(COMPRESSED, 2, **options)
    assert run.values[0][-1] == pytest.approx(exact.values[0][-1], rel=0.1)
    assert (run.bytes_sent or 0) < (exact.bytes_sent or 0)


@pytest.mark.parametrize("amp", ["bf16", "fp16"])
@pytest.mark.parametrize("name", ["ddp", "fsdp", "pipeline"])
def test_steps_in_sixteen_bits_come_near_the_exact_ones(
    cluster: object, name: str, amp: str
) -> None:
    run = trained(1, amp=amp, **ALONE[name])
    exact = trained(1, on="cpu")
    losses, expected = run.values[0][1], exact.values[0][1]
    assert losses[-1] == pytest.approx(expected[-1], rel=0.1)
    assert losses[-1] != pytest.approx(expected[-1], rel=1e-6), "nothing was rounded"
