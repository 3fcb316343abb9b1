"""Debian's Chromium, headless, driven by Playwright; or Firefox in its place."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser

__all__ = ["NAMES", "chromium_path", "headless_chromium"]

NAMES = ("chromium", "chromium-browser", "google-chrome")
_FIREFOX = os.environ.get("JUPYTER_DDL_TEST_FIREFOX", "")
"""Its path, to have it in Chromium's place; Playwright 1.58 to 1.61 drives Firefox as it comes,
1.65.2 does not."""


def chromium_path() -> str | None:
    """Where it is installed; None where it is not."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


@contextlib.contextmanager
def headless_chromium() -> Iterator[Browser]:
    """A browser of its own, closed afterwards."""
    from playwright.sync_api import sync_playwright

    path = chromium_path()
    if path is None:
        raise FileNotFoundError(f"none of {', '.join(NAMES)} is installed")
    with sync_playwright() as driver:
        if _FIREFOX:
            browser = driver.firefox.launch(executable_path=_FIREFOX, channel="moz-firefox")
        else:
            browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()
