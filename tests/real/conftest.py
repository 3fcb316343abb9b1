"""One kernel and one cluster for all programs: what takes seconds to import is imported once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.leaks import end_processes, leftovers_of, new_home
from tests.live_kernel import LiveKernel
from tests.real.table import Row, write_rows


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--real-table", type=Path, help="the page whose table gets the figures")


@pytest.fixture
def real_rows(request: pytest.FixtureRequest) -> Iterator[dict[str, Row]]:
    """What the program came to; written at once, so that a stopped run leaves what it saw."""
    rows: dict[str, Row] = {}
    yield rows
    page = request.config.getoption("--real-table")
    if page is not None:
        told = {name: row for name, row in rows.items() if row.is_told}
        write_rows(page, told)


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
