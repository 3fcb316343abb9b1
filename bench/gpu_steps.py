"""Steps a second of one training on one GPU: plainly, under DDP, and as a rank of a run.

``python -m bench.gpu_steps`` needs an NVIDIA GPU.  Each kind is measured in turns, three times;
names of kinds as arguments leave the others out.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from typing import TypeVar

__all__ = ["main"]

T = TypeVar("T")

_N_TRIES = 3
_CELL = """
import os, time
import torch
N_STEPS, N_WARM = 300, 21
torch.manual_seed(0)
model = torch.nn.Sequential(*[torch.nn.Linear(4096, 4096) for _ in range(8)])
{make}
inputs = torch.randn(512, 4096, device="cuda")
for step in range(N_STEPS):
    {make_step}
    {tell}
    if step == N_WARM - 1:
        torch.cuda.synchronize()
        began_s = time.perf_counter()
torch.cuda.synchronize()
{end}
"""
_ADAM = "optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)"
_PLAIN = f"model.cuda()\n{_ADAM}"
_DDP = f"""
import torch.distributed as dist
dist.init_process_group(
    "nccl", store=dist.HashStore(), rank=0, world_size=1, device_id=torch.device("cuda:0")
)
model = torch.nn.parallel.DistributedDataParallel(model.cuda(), device_ids=[0])
{_ADAM}
"""
_OURS = f"""
from jupyter_ddl import prepare, report
{_ADAM}
model, optimizer = prepare(model, optimizer)
"""
_BY_HAND = """with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(inputs).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
_BY_STEP = "loss = trained_by(inputs, inputs)"
_OUR_STEP = f"""
from jupyter_ddl import prepare_step, report
{_ADAM}
trained_by = prepare_step(
    model, lambda output, _: output.square().mean(), optimizer, amp="bf16"
)
"""
_RATE = "(N_STEPS - N_WARM) / (time.perf_counter() - began_s)"
_ALONE = {
    "plain": (_PLAIN, "pass"),
    "plain, loss.item() each step": (_PLAIN, "loss.item()"),
    "DDP": (_DDP, "pass"),
    "DDP, loss.item() each step": (_DDP, "loss.item()"),
}
_EACH = "report(step=step, loss=loss.detach())"
_RARELY = f"step % 20 or {_EACH}"
_IN_RUN = {
    "a run, report(loss) each step": (_OURS, _BY_HAND, _EACH),
    "a run, every 20th step": (_OURS, _BY_HAND, _RARELY),
    "prepare_step, every 20th step": (_OUR_STEP, _BY_STEP, _RARELY),
}


def _alone(make: str, tell: str) -> float:
    end = f"print({_RATE}, flush=True)\nos._exit(0)"
    cell = _CELL.format(make=make, make_step=_BY_HAND, tell=tell, end=end)
    done = subprocess.run([sys.executable, "-c", cell], capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def _in_run(make: str, make_step: str, tell: str) -> float:
    from jupyter_ddl.client.api import train

    cell = _CELL.format(make=make, make_step=make_step, tell=tell, end=_RATE)
    return float(train(cell, 1, namespace={}, gpus_per_rank=1).values[0])


def _wanted(kinds: dict[str, T]) -> list[tuple[str, T]]:
    return [each for each in kinds.items() if each[0] in (sys.argv[1:] or kinds)]


def main() -> None:
    """Print the median of each kind that the arguments name; by default of all."""
    from jupyter_ddl.client.clusters import start_cluster

    cluster = start_cluster("local", 1)
    found: dict[str, list[float]] = {}
    try:
        for _ in range(_N_TRIES):
            for name, (make, tell) in _wanted(_ALONE):
                found.setdefault(name, []).append(_alone(make, tell))
            for name, (make, make_step, tell) in _wanted(_IN_RUN):
                found.setdefault(name, []).append(_in_run(make, make_step, tell))
    finally:
        cluster.stop()
    for name, rates in found.items():
        each = ", ".join(f"{rate:.1f}" for rate in rates)
        print(f"{name:32} {statistics.median(rates):7.1f} steps/s  ({each})")


if __name__ == "__main__":
    main()
