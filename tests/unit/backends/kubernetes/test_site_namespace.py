"""Where clusters run when nobody says so: in the namespace that the site has for them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_ddl.backends.kubernetes import api as module
from jupyter_ddl.backends.kubernetes.api import NAMESPACE_VARIABLE, KubeApi
from jupyter_ddl.errors import ClusterError


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """The namespaces for which a client was made; this process is in a pod of `hub`."""
    kr8s = pytest.importorskip("kr8s.asyncio")
    found: list[str | None] = []

    async def client(namespace: str | None = None, **settings: Any) -> SimpleNamespace:
        found.append(namespace)
        return SimpleNamespace(namespace=namespace)

    monkeypatch.setattr(kr8s, "api", client)
    monkeypatch.setattr(module, "own_namespace", lambda: "hub")
    return found


@pytest.mark.parametrize(
    ("named", "site", "used"),
    [
        (None, None, "hub"),
        (None, " compute ", "compute"),
        (None, "", "hub"),
        ("mine", "compute", "mine"),
    ],
)
def test_a_site_names_the_namespace_of_clusters(
    asked: list[str | None],
    monkeypatch: pytest.MonkeyPatch,
    named: str | None,
    site: str | None,
    used: str,
) -> None:
    monkeypatch.delenv(NAMESPACE_VARIABLE, raising=False)
    if site is not None:
        monkeypatch.setenv(NAMESPACE_VARIABLE, site)
    assert asyncio.run(KubeApi.connect(named)).namespace == used
    assert asked == [used]


def test_a_site_that_names_none_is_told_so(
    asked: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(NAMESPACE_VARIABLE, "team/one")
    with pytest.raises(ClusterError, match="JUPYTER_DDL_NAMESPACE 'team/one' is not a DNS label"):
        asyncio.run(KubeApi.connect())
    assert asked == []
