"""A pytest plugin: every test of the session fits within our context, on a cluster of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def _on_a_cluster() -> Iterator[None]:
    from jupyter_ddl.client.clusters import start_cluster
    from jupyter_ddl.sklearn_fit.context import distributed_fits
    from jupyter_ddl.sklearn_fit.exchange import FitSetting

    cluster = start_cluster(n_workers=2, name="suite")
    try:
        with distributed_fits(FitSetting(namespace=globals(), folder=Path.cwd())) as fits:
            yield
        run = fits.run
        assert run is not None, "nothing went to the cluster"
        print(f"\nfits of the suite: {run.snapshot().counts.finished} candidates on the cluster")
    finally:
        cluster.stop()
