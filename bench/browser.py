"""A JupyterLab in a headless Chromium, as the browser tests start it, for rows that see pages."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from bench.harness import ROOT

if TYPE_CHECKING:
    from lab_tools import Lab
    from playwright.sync_api import Browser

__all__ = ["lab_in_browser"]


@contextlib.contextmanager
def lab_in_browser() -> Iterator[tuple[Lab, Browser]]:
    """A server with a home of its own, and a browser; within it the tests' modules can be imported.

    Server, kernels and clusters are gone afterwards.
    """
    sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "browser")]
    from chromium import headless_chromium
    from lab_tools import Lab
    from leaks import end_processes, new_home

    with new_home() as home:
        lab = Lab(home)
        lab.start()
        try:
            with headless_chromium() as browser:
                yield lab, browser
        finally:
            lab.close()
            end_processes(home)
