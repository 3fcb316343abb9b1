"""Rank groups that go on: from a whole checkpoint, with another world size, stopped together."""

from __future__ import annotations

from collections import Counter

import pytest

from jupyter_ddl import train
from jupyter_ddl.protocol.events import Notice, RankEnded, Reported
from tests.until import until

pytestmark = pytest.mark.integration

BROKEN = """
import os
from pathlib import Path
import torch
import torch.distributed as dist
from jupyter_ddl.ranks import incell

state = resume()
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    for step in (1, 2):
        checkpoint(step=step, weights=torch.full((3,), float(step)))
    dist.barrier()
    if rank() == 0:
        directory = incell._attempt._directory() / "trial-0"
        (newest,) = directory.glob("step-2-*")
        newest.write_bytes(newest.read_bytes()[:-1])
    dist.barrier()  # the first failure ends the round, and rank 0 with it
    raise RuntimeError("once more")
[state["step"], state["weights"].tolist()]
"""

SAMPLES = """
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset
import os, shutil
from jupyter_ddl.ranks import incell

if SOURCE and rank() == 0:
    shutil.copytree(SOURCE, incell._attempt._directory(), dirs_exist_ok=True)
dist.barrier()
loader = prepare(DataLoader(TensorDataset(torch.arange(50)), batch_size=4, shuffle=True,
                            num_workers=1))
state = resume() or {"step": 0}
step = state["step"]
seen = []
for (batch,) in loader:
    step += 1
    seen += batch.tolist()
    if STOP_AFTER and step == STOP_AFTER:
        checkpoint(step=step)
        break
seen
"""

ENDLESS = """
import time
import torch
import torch.distributed as dist
step = 0
try:
    while True:
        dist.all_reduce(torch.ones(2))
        report(step=step)
        step += 1
        time.sleep(0.01 * rank())
finally:
    print("left by itself")
"""


def test_a_broken_checkpoint_is_used_by_no_rank_and_it_says_so(cluster: object) -> None:
    run = train(BROKEN, 2, namespace={}, max_restarts=1)
    assert run.values == [[1, [1.0, 1.0, 1.0]]] * 2
    texts = [event.text for event in run.events() if isinstance(event, Notice)]
    assert any("step-2-a1.ckpt of trial 0 was skipped: it has" in text for text in texts)


def test_an_epoch_goes_on_with_another_number_of_ranks(cluster: object) -> None:
    values = f"SOURCE = None; STOP_AFTER = 3{SAMPLES}"
    begun = train(values, 2, namespace={}, seed=3)
    values = f"SOURCE = {str(begun.directory / 'checkpoints')!r}; STOP_AFTER = 0{SAMPLES}"
    rest = train(values, 1, namespace={}, seed=3)
    seen = Counter(sample for samples in (*begun.values, *rest.values) for sample in samples)
    assert sorted(seen) == list(range(50))
    assert set(seen.values()) == {1}


def test_ranks_asked_to_stop_at_a_report_leave_none_behind_in_a_collective(cluster: object) -> None:
    run = train(ENDLESS, 2, namespace={}, wait=False)
    until(lambda: len([e for e in run.events() if isinstance(e, Reported)]) > 10, 30, "reports")
    run.cancel("next_report")
    until(lambda: run.snapshot().finished_at_s, 20, "the end of the run")
    ended = {event.rank: event for event in run.events() if isinstance(event, RankEnded)}
    assert sorted(ended) == [0, 1]
    assert {event.outcome for event in ended.values()} == {"cancelled"}
    # A rank in a collective that the other one never joins would have needed SIGKILL.
    assert all("left by itself" in run.logs(rank) for rank in ended)
    last = {event.rank: event.step for event in run.events() if isinstance(event, Reported)}
    assert abs(last[0] - last[1]) <= 1
