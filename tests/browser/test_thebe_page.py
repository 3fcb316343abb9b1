"""The documents' page with live cells, with a Jupyter server of this host in Binder's place."""

from __future__ import annotations

import http.server
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser.lab_tools import OUT, Lab, served_lab

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page


ROOT = Path(__file__).resolve().parents[2]
_PAGE = "/live.html"
_HUB = "/build/gh/somebody/something/HEAD"


class _Site(http.server.ThreadingHTTPServer):
    """The built documents, which know ``binder``; and a hub that gives out ``server`` or fails."""

    daemon_threads = True
    binder = ""
    server: tuple[str, str] | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(http.server.SimpleHTTPRequestHandler):
    server: _Site  # type: ignore[assignment]

    def do_GET(self) -> None:
        if self.path == _PAGE:
            self._page()
        elif self.path == _HUB:
            self._hub()
        else:
            super().do_GET()

    def _page(self) -> None:
        text = Path(self.translate_path(_PAGE)).read_text(encoding="utf-8")
        known = f'data-binder="{self.server.binder}"'
        body = re.sub(r'data-binder="[^"]*"', known, text).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _hub(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self._tell(phase="waiting")
        self._tell(phase="building", message="Step 1")
        if self.server.server is None:
            self._tell(phase="failed", message="no machine is free")
        else:
            url, token = self.server.server
            self._tell(phase="ready", url=url, token=token)

    def _tell(self, **event: str) -> None:
        self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
        self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Say nothing."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Site]:
    folder = tmp_path_factory.mktemp("site")
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        timeout=600,  # it takes 15 s, and on a busy machine many times that
        check=True,
    )
    with _Site(("127.0.0.1", 0), lambda *a: _Handler(*a, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join(timeout=10)


@pytest.fixture
def jupyter(site: _Site) -> Iterator[Lab]:
    """A server that this site may use; its kernels and clusters are gone afterwards."""
    with served_lab(f"--ServerApp.allow_origin={site.address}") as server:
        yield server


def _open(page: Page, site: _Site, *, binder: str = "", after: str = "") -> list[str]:
    """Open the page as if it knew this Binder; returns what it asks of other hosts, as it grows."""
    foreign: list[str] = []
    page.on(
        "request",
        lambda request: None if "127.0.0.1" in request.url else foreign.append(request.url),
    )
    site.binder = binder
    page.goto(f"{site.address}{_PAGE}{after}")
    return foreign


def _cell(page: Page, number: int) -> Locator:
    return page.locator(".ddl-live-cell").nth(number)


def _run(page: Page, number: int) -> Locator:
    """Run a cell to its end; returns what it shows."""
    cell = _cell(page, number)
    cell.get_by_role("button", name="Run").click()
    expect(cell).to_have_attribute("data-state", "done")
    return cell.locator(".ddl-output")


def test_cells_run_on_a_server_that_binder_gives(site: _Site, jupyter: Lab, page: Page) -> None:
    site.server = (f"{jupyter.address}/", jupyter.token)
    foreign = _open(page, site, binder=_HUB)
    page.get_by_role("button", name="Start a kernel").click()
    expect(page.locator("#ddl-live")).to_have_attribute("data-state", "ready")
    _run(page, 0)
    expect(_run(page, 1)).to_contain_text("step 12")

    search = _cell(page, 2)
    search.get_by_role("button", name="Run").click()
    view = search.frame_locator(".ddl-output iframe")
    expect(view.locator("body")).to_contain_text("running")
    page.screenshot(path=OUT / "live-page-running.png", full_page=True)
    expect(view.locator("body")).to_contain_text("24 of 24 trials")
    expect(search).to_have_attribute("data-state", "done")
    expect(_run(page, 3)).to_contain_text("'x'")
    expect(_run(page, 4)).to_contain_text("range_of_ten")
    page.screenshot(path=OUT / "live-page.png", full_page=True)
    assert foreign == []

    page.goto("about:blank")
    _expect_no_kernel(jupyter, page)


def _expect_no_kernel(jupyter: Lab, page: Page) -> None:
    for _ in range(100):
        if not jupyter.ask("api/kernels"):
            return
        page.wait_for_timeout(100)
    raise AssertionError("the page was left, and its kernel goes on")


def test_a_server_of_the_readers_own_and_its_html_runs_no_script(
    site: _Site, jupyter: Lab, page: Page
) -> None:
    _open(page, site, after=f"#server={jupyter.address}&token={jupyter.token}")
    assert jupyter.token not in page.url
    code = _cell(page, 0).get_by_role("textbox")
    code.fill(
        "from IPython.display import HTML\n"
        "HTML('<b>seen</b><img src=x onerror=\"parent.document.title = \\'stolen\\'\">')"
    )
    shown = _run(page, 0)
    expect(shown.frame_locator("iframe").locator("b")).to_have_text("seen")
    assert page.title() != "stolen"
    code.fill(
        "from IPython.display import HTML\n"
        "HTML('<details><summary>more</summary><p style=\"height: 300px\">all</p></details>')"
    )
    page.evaluate("() => { document.body.dataset.mdColorScheme = 'slate'; }")
    shown = _run(page, 0)
    assert shown.locator("iframe").evaluate(
        "frame => getComputedStyle(frame.contentDocument.body).color"
        " === getComputedStyle(frame.parentElement).color"
    )
    shown.frame_locator("iframe").locator("summary").click()
    page.wait_for_function("() => document.querySelector('.ddl-output iframe').clientHeight > 300")
    code.fill("import time\ntime.sleep(60)")
    cell = _cell(page, 0)
    code.press("Shift+Enter")
    cell.get_by_role("button", name="Interrupt").click()
    expect(cell.locator(".ddl-output")).to_contain_text("KeyboardInterrupt")


@pytest.mark.parametrize("binder", ["", _HUB, "/nobody/is/here"])
def test_a_recorded_run_plays_where_no_kernel_comes(site: _Site, page: Page, binder: str) -> None:
    site.server = None
    foreign = _open(page, site, binder=binder)
    _cell(page, 0).get_by_role("button", name="Run").click()
    board = page.locator("#ddl-live")
    expect(board).to_have_attribute("data-state", "replay")
    expect(board).to_contain_text("No kernel")
    player = board.frame_locator("iframe.ddl-replay")
    expect(player.locator("body")).to_contain_text("simulated")
    page.screenshot(path=OUT / f"live-page-replay-{len(binder)}.png", full_page=True)
    assert foreign == []
