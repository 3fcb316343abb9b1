"""One kernel and one cluster for all programs: what takes seconds to import is imported once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.leaks import end_processes, leftovers_of, new_home
from tests.live_kernel import LiveKernel


@pytest.fixture(scope="package")
def real_kernel() -> Iterator[LiveKernel]:
    """A kernel with a cluster of two workers; both end with the last program."""
    with new_home() as home:
        live = LiveKernel(home)
        live.run("%load_ext jupyter_ddl\n%cluster start -n 2", timeout_s=120).check()
        yield live
        live.close()
        found = leftovers_of(home)
        end_processes(home)
        if found:
            pytest.fail("left behind:\n" + "\n".join(found), pytrace=False)
