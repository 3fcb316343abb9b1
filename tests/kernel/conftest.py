"""A kernel for tests that start nothing: one per file, because starting it takes a second."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from leaks import end_processes, leftovers_of, new_home
from live_kernel import LiveKernel


@pytest.fixture(scope="module")
def idle_kernel() -> Iterator[LiveKernel]:
    """A kernel with the extension loaded; a cluster that a test starts in it is a leftover."""
    with new_home() as home:
        live = LiveKernel(home)
        live.run("%load_ext jupyter_ddl").check()
        yield live
        live.close(stop_clusters=False)
        found = leftovers_of(home)
        end_processes(home)
        if found:
            pytest.fail("left behind:\n" + "\n".join(found), pytrace=False)
