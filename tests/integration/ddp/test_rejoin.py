"""Ranks that are lost while the others go on, and come back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jupyter_ddl import train
from jupyter_ddl.client.run import Run
from jupyter_ddl.protocol.events import AttemptStarted, Notice, RankEnded, RankStarted, Reported
from tests.until import PATIENCE_S, until

pytestmark = pytest.mark.integration

WAIT = """
import os, pathlib, signal, threading, time, torch
def wait_for(file):
    while not file.exists():
        time.sleep(0.01)
"""

SERVED = """
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
was_lost, is_back = pathlib.Path(folder, "lost"), pathlib.Path(folder, "back")
comes_back = was_lost.exists()
step = prepare_step(model, torch.nn.functional.mse_loss, optimizer)
x, y = torch.ones(4, 3), torch.ones(4, 1)
n_steps = 0
while n_steps < 5 or not is_back.exists():
    step(x, y)
    n_steps += 1
    if n_steps == 5:
        report(0, reduce="sum", n_ranks=1.0)
        if rank() == 1 and not comes_back:
            wait_for(pathlib.Path(folder, "go"))
            was_lost.touch()
            os.kill(os.getpid(), signal.SIGKILL)
    if comes_back and not step._strategy.passes:
        is_back.touch()
loss = step(x, y)
if not comes_back:
    report(1, reduce="sum", n_ranks=1.0)
n_steps, loss.item()
"""
"""The first worker goes on until the second one, which is killed, is back and has made a step."""


@pytest.fixture
def three(cluster: object) -> object:
    """A cluster with room for two workers and a server."""
    cluster.scale(3)  # type: ignore[attr-defined]
    return cluster


def trained(cell: str, n_ranks: int, folder: Path, **options: Any) -> Run:
    """Rank 1 is killed once the controller has had a report: behind all that begins a training."""
    namespace = {"folder": str(folder)}
    options = {"max_restarts": 0, **options}
    run = train(WAIT + cell, n_ranks, namespace=namespace, wait=False, **options)
    until(lambda: any(isinstance(each, Reported) for each in run.events()), 60.0, "a report")
    (folder / "go").touch()
    return run.wait(PATIENCE_S)


@pytest.mark.parametrize("strategy", ["ps-async", "ps-sync"])
def test_a_worker_that_is_killed_costs_no_restart_and_comes_back(
    strategy: str, three: object, tmp_path: Path
) -> None:
    run = trained(SERVED, 3, tmp_path, strategy=strategy)
    assert run.state == "complete"
    events = run.events()
    assert len([event for event in events if isinstance(event, AttemptStarted)]) == 1
    (lost,) = (e for e in events if isinstance(e, RankEnded) and e.others_go_on)
    (back,) = (e for e in events if isinstance(e, RankStarted) and e.life > 1)
    assert (lost.rank, lost.failure and lost.failure.type_name, back.rank) == (1, "SIGKILL", 1)
    notices = [event.text for event in events if isinstance(event, Notice)]
    assert "rank 1 died by SIGKILL; the others go on without it" in notices
    reports = [(e.step, e.metrics["n_ranks"]) for e in events if isinstance(e, Reported)]
    assert sorted(reports) == [(0, 2.0), (0, 2.0), (1, 1.0)]
    first, second, _ = run.values
    # What comes back passes over what the first worker had done by then.
    assert first[0] > 5
    assert first[1] < 1.0
    assert second is None or second[0] > 5


WAITING = """
torch.manual_seed(0)
model = torch.nn.Linear(3, 1).double()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
mark = pathlib.Path(folder, "killed")
def die():
    wait_for(pathlib.Path(folder, "go"))
    mark.touch()
    os.kill(os.getpid(), signal.SIGKILL)
if int(os.environ["RANK"]) == 2 and not mark.exists():
    threading.Thread(target=die, daemon=True).start()
step = prepare_step(model, torch.nn.functional.mse_loss, optimizer)
x, y = torch.linspace(-1, 1, 12).double().reshape(4, 3), torch.ones(4, 1).double()
begun = 1
if saved := resume():
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    begun = 6
for n_steps in range(begun, 16):
    if n_steps == 6 and not mark.exists():
        checkpoint(step=5, model=model, optimizer=optimizer)
        report(5, reduce="sum", n_ranks=1.0)
        while not step._strategy.company.members.number:
            time.sleep(0.01)
    step(x, y)
begun, n_steps
"""
"""The last server is killed behind a checkpoint; workers make their next step when they know it."""


def _weights_of_one_process() -> list[float]:
    import torch

    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    x, y = torch.linspace(-1, 1, 12).double().reshape(4, 3), torch.ones(4, 1).double()
    for _ in range(15):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    found: list[float] = model.weight.flatten().tolist()
    return found


def _assert_exact(run: Run) -> None:
    assert run.state == "complete"
    weights = run.value("model").weight.flatten().tolist()
    assert weights == pytest.approx(_weights_of_one_process(), abs=1e-9)


@pytest.mark.parametrize(
    ("strategy", "n_servers"), [("ps-sync", 1), ("ps-async", 2)], ids=["in rounds", "of two"]
)
def test_workers_wait_for_a_server_that_is_killed_and_give_it_what_it_lacks(
    strategy: str, n_servers: int, three: object, tmp_path: Path
) -> None:
    """What comes out is what it would be without the loss, the optimizer's state too.

    With two servers there is one worker: with several, gradients come in any order.
    """
    options = {"strategy": strategy, "servers": n_servers, "bring": ["model"]}
    run = trained(WAITING, 3, tmp_path, **options)
    _assert_exact(run)
    events = run.events()
    assert len([event for event in events if isinstance(event, AttemptStarted)]) == 1
    (lost,) = (e for e in events if isinstance(e, RankEnded) and e.others_go_on)
    (back,) = (e for e in events if isinstance(e, RankStarted) and e.life > 1)
    assert (lost.rank, lost.failure and lost.failure.type_name, back.rank) == (2, "SIGKILL", 2)
    notices = [event.text for event in events if isinstance(event, Notice)]
    assert "rank 2, a server, died by SIGKILL; the others wait until it is back" in notices
    n_workers = 3 - n_servers
    assert run.values == [(1, 15)] * n_workers + [None] * n_servers


def test_where_servers_update_together_all_begin_again_at_the_checkpoint_without_one(
    three: object, tmp_path: Path
) -> None:
    options = {"strategy": "ps-sync", "servers": 2, "bring": ["model"]}
    run = trained(WAITING, 3, tmp_path, max_restarts=1, **options)
    _assert_exact(run)
    assert len([event for event in run.events() if isinstance(event, AttemptStarted)]) == 2
    assert run.values == [(6, 15), None, None]


MEETING = """
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
step = prepare_step(model, torch.nn.functional.mse_loss, optimizer)
was_lost = pathlib.Path(folder, "lost")
comes_back = was_lost.exists()
saved = resume() or {"begun": 0}
if saved["begun"]:
    model.load_state_dict(saved["model"])
x, y = torch.ones(4, 3) * (rank() + 1), torch.ones(4, 1)
made = []
for number in range(saved["begun"], 60):
    if number == 20:
        checkpoint(step=20, model=model, optimizer=optimizer, begun=20)
    if number == 30 and rank() == 1 and not comes_back:
        wait_for(pathlib.Path(folder, "go"))
        was_lost.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    circle = step._strategy.circle
    while number == 45 and rank() == 0 and circle.lacks_ranks and not circle._guests():
        time.sleep(0.01)
    step(x, y)
    if not step._strategy.passes:
        made.append(number)
    if number % 10 == 0:
        report(number, reduce="mean", made=float(number))
checkpoint(step=60, model=model, optimizer=optimizer, begun=60)
made, [each.tolist() for each in model.parameters()]
"""
"""The first rank waits at its 45th step until the other one asks to be let in."""


def test_a_rank_that_is_killed_between_meetings_joins_at_a_later_one(
    cluster: object, tmp_path: Path
) -> None:
    run = trained(MEETING, 2, tmp_path, strategy="diloco", sync_every=4)
    assert run.state == "complete"
    (first, weights), (second, others) = run.values
    assert first == list(range(60))
    # It begins at the checkpoint, and passes over what the first rank has done without it.
    assert second[-1] == 59
    assert second == list(range(second[0], 60))
    assert second[0] > 30
    assert weights == others
    events = run.events()
    assert len([event for event in events if isinstance(event, AttemptStarted)]) == 1
    assert [e.rank for e in events if isinstance(e, RankStarted) and e.life > 1] == [1]
    reports = [e.step for e in events if isinstance(e, Reported) and e.rank == 0]
    assert reports == [0, 10, 20, 30, 40, 50]
