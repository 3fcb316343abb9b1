"""Secrets in cells, variables, output and errors of a run on pods: in no object and no log."""

from __future__ import annotations

import base64
import json

import pytest

from jupyter_ddl.client.api import train
from jupyter_ddl.client.run import Run
from jupyter_ddl.errors import RunFailedError
from tests.kube.kube_tools import gone, items, kubectl, start_kube
from tests.leaks import Home
from tests.unit.recording.canaries import CANARIES, CELL, VARIABLE, places_of

pytestmark = [pytest.mark.kube, pytest.mark.timeout(600)]

_KINDS = (
    "pods,services,secrets,configmaps,deployments,replicasets,networkpolicies,daskclusters,"
    "daskworkergroups,daskautoscalers,events,serviceaccounts"
)
_USERS = "the-users-own"


def test_forty_secrets_are_in_no_object_and_in_no_log_of_a_cluster(
    namespace: str, home: Home
) -> None:
    own = ("create", "secret", "generic", _USERS, "-n", namespace)
    kubectl(*own, f"--from-literal=token={VARIABLE}")
    cluster = start_kube(namespace, 1, secret_env={"MY_TOKEN": f"{_USERS}:token"})
    with pytest.raises(RunFailedError) as failed:
        train(CELL, 1, namespace={}, max_restarts=0)
    assert VARIABLE in Run(str(failed.value.fields["run_id"])).logs(), "the run itself has them"
    seen = _seen(namespace)
    cluster.stop()
    kubectl("delete", "secret", _USERS, "-n", namespace)
    gone(namespace)
    seen |= {f"log {path.name}": path.read_bytes() for path in home.runtime.rglob("*.log*")}
    assert {name.partition(" ")[0] for name in seen} >= {
        "Pod",
        "DaskCluster",
        "Secret",
        "of",
        "log",
    }
    found = {name: places_of(secret, seen) for name, _, secret in CANARIES}
    assert {name: places for name, places in found.items() if places} == {}


def _seen(namespace: str) -> dict[str, bytes]:
    """Every object of a namespace and every log of its pods, but for the user's own Secret."""
    seen: dict[str, bytes] = {}
    for each in items(_KINDS, namespace):
        name = each["metadata"]["name"]
        if name == _USERS:
            continue
        held = each.get("data", {}).values() if each["kind"] == "Secret" else ()
        plain = b"\n".join(map(base64.b64decode, held))
        seen[f"{each['kind']} {name}"] = json.dumps(each).encode() + plain
        if each["kind"] == "Pod":
            log = kubectl("logs", name, "-n", namespace, "--all-containers")
            seen[f"of {name}"] = log.encode()
    return seen
