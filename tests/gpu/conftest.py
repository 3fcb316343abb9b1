"""Tests on real GPUs: skipped, with the reason, where torch finds none."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.leaks import Home


def _why_not() -> str:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is built without CUDA"
    if not torch.cuda.is_available():
        return "torch finds no GPU (torch.cuda.is_available() is false)"
    return ""


@pytest.fixture(autouse=True)
def gpus() -> int:
    """How many GPUs there are."""
    if reason := _why_not():
        pytest.skip(reason)
    import torch

    return int(torch.cuda.device_count())


@pytest.fixture
def two_gpus(gpus: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of collectives between GPUs: where there is one, ranks take it for two."""
    if gpus < 2:
        path = [str(Path(__file__).parent / "shared_gpu"), os.environ.get("PYTHONPATH", "")]
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, path)))


@pytest.fixture
def own_gpus(gpus: int) -> None:
    """For tests of who has which GPU, with two ranks."""
    if gpus < 2:
        pytest.skip(f"two GPUs are needed, this host has {gpus}")


@pytest.fixture
def cluster(gpus: int, home: Home) -> Iterator[object]:
    """A local cluster with two workers whose zygotes have imported torch, and no CUDA."""
    from jupyter_ddl.client.clusters import Cluster
    from jupyter_ddl.client.session import session
    from jupyter_ddl.protocol.cluster import ClusterSpec
    from jupyter_ddl.store.connection import read_connection

    session().start(ClusterSpec(name="test", n_workers=2, prewarm=("torch",)))
    started = Cluster("test")
    yield started
    if read_connection("test") is not None:
        started.stop()
