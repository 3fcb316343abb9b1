"""A training whose ranks go on without one that is lost: pods that are lost, and pods that come."""

from __future__ import annotations

import pytest

from jupyter_ddl import train
from jupyter_ddl.protocol.events import AttemptStarted, RankStarted, Reported
from tests.kube.kube_tools import delete_pod, gone, pods, start_kube
from tests.until import until

pytestmark = pytest.mark.kube

CELL = """
import time
import torch
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
step = prepare_step(model, torch.nn.functional.mse_loss, optimizer)
x, y = torch.ones(4, 3), torch.ones(4, 1)
for number in range(10**9):
    step(x, y)
    report(step=number, seen=1.0)
    if not step._strategy.passes:
        time.sleep(0.02)
"""


def test_ranks_join_on_pods_that_come_later_and_in_place_of_lost_ones(namespace: str) -> None:
    cluster = start_kube(namespace, 1)
    run = train(
        CELL,
        2,
        namespace={},
        strategy="diloco",
        sync_every=4,
        min_ranks=1,
        max_restarts=0,
        wait=False,
    )

    def reports(rank: int, since_s: float = 0.0) -> list[Reported]:
        found = (event for event in run.events() if isinstance(event, Reported))
        return [event for event in found if event.rank == rank and event.at_s > since_s]

    until(lambda: reports(0), 90, "the first rank's steps")
    cluster.scale(2)
    until(lambda: reports(1), 90, "the second one's")

    def starts() -> list[RankStarted]:
        begun = (event for event in run.events() if isinstance(event, RankStarted))
        return [event for event in begun if event.rank == 1]

    (started,) = starts()
    names = [pod["metadata"]["name"] for pod in pods(namespace, "worker")]
    (name,) = [name for name in names if started.worker in name]
    delete_pod(namespace, name)

    (_, again) = until(lambda: starts() if len(starts()) == 2 else [], 90, "its new start")
    until(lambda: reports(1, again.at_s), 90, "its first step there")
    assert again.host != started.host
    assert until(lambda: reports(0, reports(1)[-1].at_s), 30, "a step of the first rank")
    assert len([event for event in run.events() if isinstance(event, AttemptStarted)]) == 1
    run.cancel("now")
    run.wait()
    cluster.stop()
    gone(namespace)
