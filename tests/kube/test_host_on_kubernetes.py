"""Kubernetes keeps the contract of hosts of controllers."""

from __future__ import annotations

import pytest

from jupyter_ddl.backends.kubernetes.api import NAMESPACE_VARIABLE
from jupyter_ddl.testing.hosts import HostCase, HostContract
from tests.kube.kube_tools import kube_cluster, lasting

pytestmark = [pytest.mark.kube, pytest.mark.timeout(400)]


class TestKubernetes(HostContract):
    @pytest.fixture
    def case(self, namespace: str, monkeypatch: pytest.MonkeyPatch) -> HostCase:
        monkeypatch.setenv(NAMESPACE_VARIABLE, namespace)  # where clusters are looked for
        spec = kube_cluster("kube", 1, namespace=namespace)
        return HostCase(spec, leftovers=lambda: lasting(namespace))
