"""Plain Dask code on a cluster of ours."""

from __future__ import annotations

import os
from typing import Any

import pytest

import jupyter_ddl

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]


def test_the_client_is_connected_by_tls_and_dasks_default(cluster: Any) -> None:
    import dask
    from distributed import default_client

    client = jupyter_ddl.client()
    assert client is jupyter_ddl.client()
    assert client is default_client()
    assert client.scheduler.address.startswith("tls://127.0.0.1")
    pids = dask.compute(*(dask.delayed(os.getpid, pure=False)() for _ in range(4)))
    assert os.getpid() not in pids
    limits = {w["memory_limit"] for w in client.scheduler_info(n_workers=-1)["workers"].values()}
    assert all(limits)
    cluster.stop()
    assert client.status == "closed"
