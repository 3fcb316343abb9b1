"""Every verb on pods, which share no file with the controller."""

from __future__ import annotations

import numpy as np
import pytest

from jupyter_ddl.client.api import map_cell, search, train
from jupyter_ddl.client.group import open_group
from tests.kube.kube_tools import gone, start_kube

pytestmark = [pytest.mark.kube, pytest.mark.timeout(600)]

SEARCH = """
import socket
from jupyter_ddl import checkpoint, report, uniform
x = uniform(0.0, 1.0)
print("on", socket.gethostname(), data.sum())
for step in range(3):
    report(step=step, score=x + float(data[step]))
    checkpoint(step=step, weights=data[:100], step_done=step)
model = {"x": x, "host": socket.gethostname()}
"""

DDP = """
import socket
import torch, torch.distributed as dist
from jupyter_ddl import rank, report
x = torch.ones(3) * (rank() + 1)
dist.all_reduce(x)
print("rank", rank(), "on", socket.gethostname())
report(step=0, total=float(x[0]))
host = socket.gethostname()
float(x[0])
"""


def test_search_map_ddp_and_run_leave_their_files_here(
    namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTER_DDL_PREWARM", "numpy,torch")
    cluster = start_kube(namespace, 2)
    data = np.arange(1_000_000, dtype=float)

    found = search(SEARCH, namespace={"data": data}, metric="score", trials=4, bring=("model",))
    assert (found.state, found.errors) == ("complete", {})
    assert "@sha256:" in found.spec.provenance.image
    assert "on kube-" in found.logs(0)
    assert str(data.sum()) in found.logs(0)
    assert found.value("model")["x"] == found.best.params["x"]
    for trial in range(4):
        saved = sorted((found.directory / "checkpoints" / f"trial-{trial}").iterdir())
        assert [path.name for path in saved] == ["step-1-a1.ckpt", "step-2-a1.ckpt"]

    squares = map_cell("item ** 2 * data[item]", list(range(5)), namespace={"data": data})
    assert squares.values == [float(n**3) for n in range(5)]

    ddp = train(DDP, 2, namespace={}, bring=("host",))
    assert (ddp.state, ddp.values) == ("complete", [3.0, 3.0])
    hosts = {ddp.value("host", rank=rank) for rank in range(2)}
    assert len(hosts) == 2, "the ranks are in different pods"
    assert all(host in ddp.logs() for host in hosts)

    group = open_group(2)
    assert group.execute("big = data * 2\nprint('hello')\nfloat(big[3])", push={"data": data})
    results = group.execute("import torch.distributed as d\nd.get_rank()", bring=("big",))
    assert results.values == [0, 1]
    assert results.value("big", 1)[3] == 6.0
    group.close()

    cluster.stop()
    gone(namespace)
