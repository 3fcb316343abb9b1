"""A real JupyterLab and a real Chromium for the tests of this folder.

``lab`` is one server per file, with directories of its own; ``page`` is a fresh browser page per
test.  Screenshots go to ``out/browser`` (see :func:`lab_tools.take`).
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.chromium import NAMES, chromium_path, headless_chromium
from tests.until import PATIENCE_S

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from tests.browser.lab_tools import Lab

if importlib.util.find_spec("playwright") is None:
    # Test files import it, and a plain `make test` reads them before it leaves them out.
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """One headless browser per process of tests; skips with the reason where there is none."""
    pytest.importorskip(
        "playwright.sync_api", reason="no playwright: pip install 'jupyter_ddl[browser]'"
    )
    if chromium_path() is None:
        pytest.skip(f"none of {', '.join(NAMES)} is installed")
    from playwright.sync_api import expect

    # Everything may wait for a cluster's start, on a machine that is busy.
    expect.set_options(timeout=PATIENCE_S * 1000)
    with headless_chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """A JupyterLab server on a free port; its kernels and clusters are gone afterwards."""
    pytest.importorskip("jupyterlab", reason="no JupyterLab: pip install 'jupyter_ddl[lab]'")
    from tests.browser.lab_tools import served_lab

    with served_lab() as server:
        yield server


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    """A page in a context of its own; what it logs as errors is in ``page.errors``."""
    context = chromium.new_context(viewport={"width": 1100, "height": 1000})
    opened = context.new_page()
    opened.set_default_timeout(PATIENCE_S * 1000)
    _slow_down(opened)
    yield opened
    context.close()


def _slow_down(page: Page) -> None:
    """Give the page a processor as many times slower as ``JUPYTER_DDL_TEST_SLOW_PAGE`` says."""
    rate = float(os.environ.get("JUPYTER_DDL_TEST_SLOW_PAGE", "1"))
    if rate > 1:
        session = page.context.new_cdp_session(page)
        session.send("Emulation.setCPUThrottlingRate", {"rate": rate})


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder needs a browser."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.browser)
