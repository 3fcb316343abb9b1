"""``--profile N`` on real ranks: traces beside the run, and in its record what costs most."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from jupyter_ddl import train

pytestmark = pytest.mark.integration

TRAINING = """
import torch

model = prepare(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(12):
    optimizer.zero_grad()
    model(torch.ones(16, 8)).mean().backward()
    optimizer.step()
"""


def test_each_rank_has_a_trace_of_so_many_steps(cluster: object) -> None:
    run = train(TRAINING, 2, namespace={}, profile=3)
    assert run.state == "complete"
    table = run.profile
    assert sorted(set(table["rank"])) == [0, 1]
    assert "aten::addmm" in set(table.operation)
    for trace in set(table.trace):
        events = json.loads(gzip.decompress(Path(trace).read_bytes()))["traceEvents"]
        steps = [each["name"] for each in events if each["name"].startswith("ProfilerStep#")]
        assert len(steps) == 3
    assert run.logs(0) == ""  # nor does torch's profiler say anything there
    # A step that was slowed down is no measurement: the first, the warm-up and three of them.
    timed = run._fold().ranks[0].steps
    assert timed[0].n_steps <= 12 - 5
