"""A controller that can't reach the pods' network: all of it goes through the API server."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from jupyter_ddl.client.api import search
from jupyter_ddl.client.group import open_group
from jupyter_ddl.errors import ClusterError
from tests.kube.kube_tools import gone, kubectl, start_kube

pytestmark = [pytest.mark.kube, pytest.mark.timeout(500)]

_RULE = ["OUTPUT", "-d", "10.78.0.0/15", "-p", "tcp", "--syn", "-j", "REJECT"]
"""This host's own connections to the lab's pods and services, but not to its API server."""

SEARCH = """
from jupyter_ddl import checkpoint, report, uniform
x = uniform(0.0, 1.0)
report(step=0, score=x + float(data[1]))
checkpoint(step=0, weights=data)
print("done", data.sum())
"""


@pytest.fixture
def no_way(lab: Path) -> Iterator[None]:
    subprocess.run(["iptables", "-I", *_RULE], check=True)
    yield
    subprocess.run(["iptables", "-D", *_RULE], check=True)


def test_pods_out_of_reach_serve_all_the_same(account: str, no_way: None) -> None:
    """With no more rights than the printed Role gives."""
    cluster = start_kube(account, 1)
    data = np.arange(2_000_000, dtype=float)
    run = search(SEARCH, namespace={"data": data}, metric="score", trials=2)
    assert (run.state, run.errors) == ("complete", {})
    assert f"done {data.sum()}" in run.logs(1)
    assert len(list(run.directory.glob("checkpoints/*/*.ckpt"))) == 2
    group = open_group(1)
    assert group.execute("1 + 1").values == [2]
    group.close()
    cluster.stop()
    gone(account)


def test_pods_out_of_reach_without_the_right_to_forward_a_port(account: str, no_way: None) -> None:
    role = json.loads(kubectl("get", "role", "jupyter-ddl", "-n", account, "-o", "json"))
    role["rules"] = [rule for rule in role["rules"] if "pods/portforward" not in rule["resources"]]
    kubectl("replace", "-f", "-", stdin=json.dumps(role))
    with pytest.raises(ClusterError) as caught:
        start_kube(account, 1)
    assert "there is no route to it from here" in caught.value.message
    assert "pods/portforward" in caught.value.message
    gone(account)
