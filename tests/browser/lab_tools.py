"""What the browser tests do with JupyterLab: start it, open a notebook, run a cell, look."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.leaks import Home, end_processes, leftovers_of, new_home
from tests.until import PATIENCE_S, until

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

__all__ = [
    "OUT",
    "THEMES",
    "Lab",
    "look_at",
    "open_notebook",
    "press_twice",
    "run_cell",
    "serious_findings",
    "served_lab",
    "set_theme",
    "take",
    "view_at",
    "wait_done",
]

OUT = Path(__file__).resolve().parents[2] / "out" / "browser"
"""Where pictures are left."""
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}

_START_S = 60.0
_STOP_S = 15.0
_SETTINGS = "config/lab/user-settings"
_STOP_CLUSTERS = (
    "from jupyter_ddl.client.clusters import list_clusters\n"
    "for each in list_clusters():\n    each.stop()\n"
)


class Lab:
    """One server process with a home of its own.

    Parameters
    ----------
    home : Home
        All directories of Jupyter and of this package lie below it.
    options : str
        More words for the command line, ``--LabApp.…=…``.
    """

    def __init__(self, home: Home, *options: str) -> None:
        self.home = home
        self.token = secrets.token_hex(16)
        self.port = 0
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Without a path and without the token."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        """What the server has logged."""
        return (self.home.root / "lab.log").read_text(errors="replace")

    def start(self) -> None:
        """Start the server and wait until it answers; on the same port when it was stopped."""
        home = self.home
        self.port = self.port or _free_port()
        settings = home.root / _SETTINGS / "@jupyterlab" / "apputils-extension"
        settings.mkdir(parents=True, exist_ok=True)
        # The question for news would lie over what is tested.
        (settings / "notification.jupyterlab-settings").write_text('{"fetchNews": "false"}')
        command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"]
        command += ["--ip=127.0.0.1", f"--port={self.port}", "--ServerApp.port_retries=0"]
        command += [f"--ServerApp.root_dir={home.work}", f"--IdentityProvider.token={self.token}"]
        command += ["--LabApp.expose_app_in_browser=True", "--LabApp.extension_manager=readonly"]
        env = {
            **os.environ,
            **home.variables(),
            "JUPYTERLAB_SETTINGS_DIR": str(home.root / _SETTINGS),
            "JUPYTERLAB_WORKSPACES_DIR": str(home.root / "config/lab/workspaces"),
            "JUPYTER_DDL_PREWARM": "",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        }
        # Warnings of Jupyter's own libraries are none of these tests' business.
        env.pop("PYTHONWARNINGS", None)
        with (home.root / "lab.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, *self._options], stdout=log, stderr=log, cwd=home.work, env=env
            )
        until(self._answers, _START_S, "JupyterLab's answer")

    def stop(self) -> None:
        """End the server and its kernels; clusters go on."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(timeout=_STOP_S)
            except subprocess.TimeoutExpired:
                # A worker thread of anyio can outlive the server's loop and hold up its process.
                self._process.kill()
                self._process.wait(timeout=_STOP_S)
            self._process = None

    def close(self) -> None:
        """End the server, then all clusters of the home."""
        self.stop()
        env = {**os.environ, **self.home.variables()}
        subprocess.run([sys.executable, "-c", _STOP_CLUSTERS], env=env, timeout=120, check=True)

    def ask(self, path: str) -> Any:
        """The JSON that the server answers to a GET, for instance of ``api/kernels``."""
        request = urllib.request.Request(
            f"{self.address}/{path}", headers={"Authorization": f"token {self.token}"}
        )
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as reply:
            return json.load(reply)

    def _answers(self) -> bool:
        if self._process is None or self._process.poll() is not None:
            raise AssertionError(f"JupyterLab ended:\n{self.log[-2000:]}")
        try:
            self.ask("api")
        except (urllib.error.URLError, ConnectionError):
            return False
        return True


def open_notebook(page: Page, lab: Lab, name: str, *cells: str) -> None:
    """Write a notebook of these cells and open it; returns once its kernel is ready.

    The same page may be reloaded afterwards: ``page.reload()``, then :func:`wait_ready`.
    """
    notebook = {
        "cells": [
            {
                "cell_type": "code",
                "id": f"cell-{number}",
                "execution_count": None,
                "metadata": {},
                "outputs": [],
                "source": source,
            }
            for number, source in enumerate(cells)
        ],
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    (lab.home.work / name).write_text(json.dumps(notebook))
    page.goto(f"{lab.address}/lab/tree/{name}?token={lab.token}&reset")
    wait_ready(page)


def wait_ready(page: Page) -> None:
    """Wait for the open notebook's kernel.

    Its toolbar calls the kernel idle before there is a session, so the session itself is asked.
    """
    page.wait_for_selector(".jp-NotebookPanel .jp-Cell")
    page.evaluate(
        "async () => { const panel = window.jupyterapp.shell.currentWidget;"
        " await panel.revealed; await panel.sessionContext.ready; }"
    )


def cell_at(page: Page, index: int) -> Locator:
    """A cell of the open notebook, by its place."""
    return page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Cell").nth(index)


def view_at(page: Page, index: int) -> Locator:
    """The live view in the output of a cell, once it draws."""
    return look_at(cell_at(page, index), ".ddl-live[data-run]")


def look_at(cell: Locator, selector: str) -> Locator:
    """Something in the output of a cell, once it is visible.

    A view begins when it is in sight, and those above it push it out of there while they grow.
    """
    output = cell.locator(".jp-Cell-outputArea")
    found = output.locator(selector).first

    def is_visible() -> bool:
        output.scroll_into_view_if_needed()
        return found.is_visible()

    until(is_visible, 20, f"{selector} in sight")
    return found


def run_cell(page: Page, index: int, *, wait: bool = True, timeout_s: float = 60.0) -> Locator:
    """Run one cell; returns its output area.

    Parameters
    ----------
    wait : bool
        Until it has ended, by its prompt number.
    """
    page.evaluate(
        "index => { const panel = window.jupyterapp.shell.currentWidget;"
        " panel.content.activeCellIndex = index; panel.content.deselectAll(); }",
        index,
    )
    # Not awaited: the command's promise ends with the cell.
    page.evaluate("() => { void window.jupyterapp.commands.execute('notebook:run-cell'); }")
    until(lambda: prompt_of(page, index) != "[ ]:", 20, f"cell {index} to begin")
    if wait:
        wait_done(page, index, timeout_s)
    return cell_at(page, index).locator(".jp-Cell-outputArea")


def wait_done(page: Page, index: int, timeout_s: float = 60.0) -> None:
    """Wait until a cell has a prompt number."""
    deadline = time.monotonic() + max(timeout_s, PATIENCE_S)
    while not prompt_of(page, index)[1:-2].isdecimal():
        if time.monotonic() > deadline:
            text = cell_at(page, index).inner_text()
            raise AssertionError(f"cell {index} has not ended within {timeout_s:g} s:\n{text}")
        page.wait_for_timeout(50)


def press_twice(button: Locator, question: str) -> None:
    """Press a button that asks first, and again before it takes its question back (4 s)."""
    button.wait_for()
    until(button.is_enabled, 10, "a button that can be pressed")
    twice = "each => { each.click(); const asked = each.textContent; each.click(); return asked; }"
    asked = button.evaluate(twice)
    assert asked.startswith(question), asked


def prompt_of(page: Page, index: int) -> str:
    """``[ ]:`` before, ``[*]:`` while, ``[7]:`` after."""
    prompt = cell_at(page, index).locator(".jp-InputArea-prompt")
    return prompt.inner_text().replace("\u00a0", " ").strip() or "[ ]:"


def set_theme(page: Page, theme: str) -> None:
    """``light`` or ``dark``."""
    page.evaluate(
        "name => window.jupyterapp.commands.execute('apputils:change-theme', {theme: name})",
        THEMES[theme],
    )
    page.wait_for_function(
        "light => document.body.dataset.jpThemeLight === light", arg=str(theme == "light").lower()
    )
    # What JupyterLab lays over the page meanwhile fades away.
    page.wait_for_selector("#jupyterlab-splash", state="detached")


_AXE = Path(__file__).resolve().parents[2] / "labextension/node_modules/axe-core/axe.min.js"
_AXE_RUN = """\
async selector => {
  // JupyterLab's own toolbar buttons carry a state that their role does not have.
  const part = { include: [selector], exclude: ["jp-button"] };
  const found = await axe.run(part, { resultTypes: ["violations"] });
  return found.violations.filter(each => ["serious", "critical"].includes(each.impact)).flatMap(
    each => each.nodes.map(node => `${each.id}: ${node.html.slice(0, 160)} ${node.failureSummary}`)
  );
}"""


def serious_findings(page: Page, selector: str) -> list[str]:
    """What axe-core finds serious or critical in a part of the page."""
    if not _AXE.exists():
        raise AssertionError("axe-core is not there: make test-js brings it")
    if not page.evaluate("() => 'axe' in window"):
        # Not as a script of the page: JupyterLab's loader would take it for a module of its own.
        source = _AXE.read_text()
        page.evaluate(f"() => {{ const define = undefined, module = undefined; {source} }}")
    found: list[str] = page.evaluate(_AXE_RUN, selector)
    return found


def take(target: Page | Locator, name: str) -> Path:
    """Leave a picture in ``out/browser``."""
    OUT.mkdir(parents=True, exist_ok=True)
    path = OUT / f"{name}.png"
    target.screenshot(path=path)
    return path


@contextlib.contextmanager
def served_lab(*options: str) -> Iterator[Lab]:
    """A server with a home of its own; it fails unless all kernels and clusters end with it."""
    with new_home() as home:
        server = Lab(home, *options)
        server.start()
        yield server
        server.close()
        found = leftovers_of(home)
        end_processes(home)
        if found:
            pytest.fail("left behind:\n" + "\n".join(found), pytrace=False)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
