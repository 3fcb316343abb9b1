"""Who is told that clusters on Kubernetes can't be listed."""

from __future__ import annotations

import asyncio

import pytest

from jupyter_ddl.backends.kubernetes import api, lifetime
from jupyter_ddl.backends.kubernetes.plugin import KubePlugin
from jupyter_ddl.errors import BackendError


@pytest.mark.parametrize(
    ("status", "in_pod", "is_told"),
    [(403, True, False), (404, True, False), (0, True, True), (403, False, True)],
)
def test_a_pod_that_was_never_given_a_right_has_no_clusters(
    monkeypatch: pytest.MonkeyPatch, *, status: int, in_pod: bool, is_told: bool
) -> None:
    async def refused() -> None:
        raise BackendError("listing daskclusters was refused", status=status)

    monkeypatch.setattr(lifetime, "is_configured", lambda: True)
    monkeypatch.setattr(lifetime, "find_clusters", refused)
    monkeypatch.setattr(api, "own_namespace", lambda: "lab" if in_pod else None)
    if is_told:
        with pytest.raises(BackendError):
            asyncio.run(KubePlugin().find_elsewhere())
    else:
        assert asyncio.run(KubePlugin().find_elsewhere()) == []
