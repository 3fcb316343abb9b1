"""Clusters of pods keep what every backend keeps."""

from __future__ import annotations

import pytest

from jupyter_ddl.backends.base import Backend
from jupyter_ddl.testing.backends import BackendCase, BackendContract
from tests.kube.kube_tools import delete_pod, kube_cluster, objects, pods

pytestmark = [pytest.mark.kube, pytest.mark.timeout(600)]


class TestKubernetes(BackendContract):
    @pytest.fixture
    def case(self, namespace: str) -> BackendCase:
        async def lose(backend: Backend, address: str) -> None:
            named = {each["status"]["podIP"]: each for each in pods(namespace, "worker")}
            host = address.rpartition("//")[2].rpartition(":")[0]
            delete_pod(namespace, named[host]["metadata"]["name"])

        return BackendCase(
            kube_cluster("kube", 2, namespace=namespace),
            leftovers=lambda: objects(namespace),
            lose_worker=lose,
        )
