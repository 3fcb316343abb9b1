"""A Jupyter server and a panel for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.server.jupyter_process import Browser, JupyterServer, serving
from tests.leaks import Home, new_home


@pytest.fixture
def server(home: Home) -> Iterator[JupyterServer]:
    with serving(home) as found:
        yield found


@pytest.fixture(scope="module")
def idle_server() -> Iterator[JupyterServer]:
    """One for all tests of a file that start nothing; its start takes seconds."""
    with new_home() as home, serving(home) as found:
        yield found


@pytest.fixture
def browser(server: JupyterServer) -> Iterator[Browser]:
    found = server.connect()
    yield found
    found.close()
