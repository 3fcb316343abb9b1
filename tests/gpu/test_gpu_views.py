"""What people see of a run on a GPU: its load and memory, and where a step's time goes."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_ddl import train
from jupyter_ddl.client.clusters import Cluster
from jupyter_ddl.client.session import session
from jupyter_ddl.protocol.replies import TelemetryResult
from jupyter_ddl.protocol.requests import GetTelemetry
from jupyter_ddl.protocol.telemetry import ClusterTelemetry
from tests.until import until

pytestmark = [pytest.mark.gpu, pytest.mark.integration]

BUSY = """
import torch
held = torch.empty(2 << 30, dtype=torch.uint8, device=device())
a = torch.full((8192, 8192), 1.0, device=device())
for step in range(100_000):
    for _ in range(10):
        a = (a @ a) / 8192
    report(step=step, mean=float(a.mean()))
"""

STEPS = """
import torch
model = torch.nn.Linear(512, 512)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
step = prepare_step(model, torch.nn.functional.mse_loss, optimizer)
x, y = torch.randn(64, 512), torch.randn(64, 512)
for number in range(12):
    loss = step(x, y)
"""


def _picture() -> ClusterTelemetry:
    result = session().ask("test", GetTelemetry(""))
    assert isinstance(result, TelemetryResult)
    return msgspec.json.decode(result.telemetry.json, type=ClusterTelemetry)


def test_the_load_and_the_memory_of_a_gpu_are_seen_while_a_rank_uses_it(cluster: Cluster) -> None:
    run = train(BUSY, 1, namespace={}, gpus_per_rank=1, wait=False)

    def busy() -> bool:
        gpus = [gpu for worker in _picture().workers for gpu in worker.gpus]
        return any((gpu.utilization or 0.0) > 0.5 for gpu in gpus)

    until(busy, 60.0, "a GPU that is busy")
    gpu = max(
        (gpu for worker in _picture().workers for gpu in worker.gpus),
        key=lambda each: each.memory_used_bytes or 0,
    )
    assert (gpu.memory_used_bytes or 0) > 2 << 30
    assert (gpu.memory_total_bytes or 0) >= (gpu.memory_used_bytes or 0)
    assert (gpu.power_w or 0.0) > 0.0
    assert "busy" in cluster.status().gpus
    run.cancel("now")
    until(lambda: run.snapshot().finished_at_s, 30.0, "the end")
    usage = run.snapshot().usage
    assert usage is not None
    assert usage.gpu_hours > 0.0


def test_the_costliest_operations_are_those_on_the_gpu(cluster: Cluster) -> None:
    run = train(STEPS, 1, namespace={}, gpus_per_rank=1, profile=3)
    table = run.profile
    assert len(table)
    assert table.device_ms.max() > 0.0
    assert table.device_ms.iloc[0] == table.device_ms.max()


def test_steps_on_a_gpu_are_timed(cluster: Cluster) -> None:
    run = train(STEPS, 1, namespace={}, gpus_per_rank=1)
    timed = run._fold().ranks[0].steps[0]
    assert timed.n_steps == 11
    assert (timed.peak_memory_bytes or 0) >= 512 * 512 * 4
