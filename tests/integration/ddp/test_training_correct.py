"""Data-parallel training against one process with the whole batch, and checkpoints between them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from jupyter_ddl import train
from jupyter_ddl.protocol.events import Reported
from jupyter_ddl.ranks.checkpoints import newest_checkpoint

pytestmark = pytest.mark.integration

_N_STEPS = 20

SETUP = """
import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(5)
kind = getattr(torch, TYPE)
inputs = torch.randn(160, 6, dtype=kind)
targets = torch.randn(160, 3, dtype=kind)
model = torch.nn.Sequential(
    torch.nn.Linear(6, 13), torch.nn.Tanh(), torch.nn.Linear(13, 3)
).to(kind)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
"""
"""Layers that do not divide evenly by two ranks.  No batch norm: it sees each rank's half only."""

STEPS = """
loader = DataLoader(TensorDataset(inputs, targets), batch_size=16 // world_size(), shuffle=True)
model, optimizer, loader = prepare(model, optimizer, loader)
state = resume()
step = 0
if state:
    step = state["step"]
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
while step < N_STEPS:
    for batch, wanted in loader:
        step += 1
        optimizer.zero_grad()
        loss = ((model(batch) - wanted) ** 2).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        report(step=step, reduce="mean", loss=loss)
        if step == STOP_AT:
            checkpoint(step=step, model=model, optimizer=optimizer)
        if step == N_STEPS:
            break
if step != STOP_AT:  # the pass was left, and its epoch is over
    checkpoint(step=N_STEPS, model=model, optimizer=optimizer)
"""


TAKE_OVER = """
import shutil
import torch.distributed as dist
from jupyter_ddl.ranks import incell
if rank() == 0:
    shutil.copytree("{source}", incell._attempt._directory(), dirs_exist_ok=True)
dist.barrier()
"""
"""Puts the checkpoints of another run into this one's place."""


def _cell(kind: str = "float64", n_steps: int = _N_STEPS, stop_at: int = 0) -> str:
    values = f"TYPE = {kind!r}; N_STEPS = {n_steps}; STOP_AT = {stop_at}"
    return f"{values}{SETUP}{STEPS}"


def _trained(cell: str, n_ranks: int, **options: Any) -> tuple[dict[str, Any], list[float]]:
    run = train(cell, n_ranks, namespace={}, seed=3, **options)
    state = newest_checkpoint(run.directory / "checkpoints", 0, print)
    assert state is not None
    reports = [event for event in run.events() if isinstance(event, Reported) and not event.rank]
    return state, [event.metrics["loss"] for event in reports]


def _assert_close(state: dict[str, Any], reference: dict[str, Any], tolerance: float) -> None:
    assert list(state["model"]) == list(reference["model"])
    for name, value in reference["model"].items():
        torch.testing.assert_close(state["model"][name], value, atol=tolerance, rtol=tolerance)
    moments = reference["optimizer"]["state"]
    assert state["optimizer"]["state"].keys() == moments.keys()
    for number, values in moments.items():
        for name, value in values.items():
            found = state["optimizer"]["state"][number][name]
            torch.testing.assert_close(found, value, atol=tolerance, rtol=tolerance)


def test_two_ranks_train_like_one_with_the_whole_batch(cluster: object) -> None:
    # Both see the same samples at every step and differ only in the order of additions: the mean
    # over 16 samples is the mean of two means over 8.  A rounding error is 2**-53 (1e-16); 20
    # steps of Adam, which divides by the root of the second moment, amplify it, by less than 1e4.
    reference, losses = _trained(_cell(), 1)
    for strategy in ("ddp", "fsdp"):
        state, reduced = _trained(_cell(), 2, strategy=strategy)
        _assert_close(state, reference, 1e-12)
        assert reduced == pytest.approx(losses, rel=1e-12)
    # The same in 32 bits, with errors of 2**-24 (6e-8) each.
    reference, _ = _trained(_cell("float32"), 1)
    state, _ = _trained(_cell("float32"), 2)
    _assert_close(state, reference, 1e-4)


@pytest.mark.parametrize(
    ("first", "second"),
    [((2, "ddp"), (1, "ddp")), ((1, "ddp"), (2, "fsdp")), ((2, "fsdp"), (2, "ddp"))],
)
def test_a_checkpoint_of_one_strategy_and_size_is_gone_on_from_by_another(
    cluster: object, first: tuple[int, str], second: tuple[int, str]
) -> None:
    # 7 of the 10 steps of the first epoch, then the rest of that epoch and the next one.
    reference, _ = _trained(_cell(), 1)
    begun = train(_cell(n_steps=7, stop_at=7), first[0], namespace={}, seed=3, strategy=first[1])
    state, _ = _trained(
        TAKE_OVER.format(source=begun.directory / "checkpoints") + _cell(),
        second[0],
        strategy=second[1],
    )
    _assert_close(state, reference, 1e-12)
