"""``make pictures``: the README's moving picture, from a real run in a real JupyterLab.

Opens the quickstart up to its search in a headless Chromium, and films the upper part of the cell
with its live view until the search is over, in the light and in the dark theme.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
_LAST_CELL = "search"
_N_TRIALS = 60
_LINE = f"%%distribute search --metric val_acc --trials {_N_TRIALS} --sampler tpe --name digits"
_THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}
_WIDTH, _HEIGHT = 900, 1700
_SHOWN_HEIGHT = 600
"""Down to the curves: what lies below hardly moves."""
_TRIALS_PER_FRAME = 3
_FRAME_MS, _LAST_MS = 350, 4000
_QUALITY = 70
_MAX_BYTES = 600_000
_WAIT_S = 300.0
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_SEARCH_CELL = ".jp-CodeCell:has-text('%%distribute')"


def main() -> int:
    """Exit status 1 when a tool is missing."""
    parser = argparse.ArgumentParser(description="Take the README's pictures.")
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "images")
    output = parser.parse_args().output
    browser = next((found for name in _BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        print(f"none of {', '.join(_BROWSERS)} is installed", file=sys.stderr)
        return 1
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ddl-", ignore_cleanup_errors=True) as folder:
        _make_home(Path(folder))
        with _lab(Path(folder)) as address, _page(browser, address) as page:
            _run_all(page)
            films = _film(page)
    for theme, frames in films.items():
        _save(frames, output / f"live_view_{theme}.webp")
    return 0


def _make_home(folder: Path) -> None:
    """A home of its own, so that runs and clusters of the user's are neither shown nor touched."""
    for name in ("home", "runtime", "config", "settings", "workspaces", "ipython", "work"):
        (folder / name).mkdir()
    os.environ |= {
        "JUPYTER_DDL_HOME": f"{folder}/home",
        "JUPYTER_RUNTIME_DIR": f"{folder}/runtime",
        "JUPYTER_CONFIG_DIR": f"{folder}/config",
        "JUPYTERLAB_SETTINGS_DIR": f"{folder}/settings",
        "JUPYTERLAB_WORKSPACES_DIR": f"{folder}/workspaces",
        "IPYTHONDIR": f"{folder}/ipython",
    }
    quiet = folder / "settings" / "@jupyterlab" / "apputils-extension"
    quiet.mkdir(parents=True)
    (quiet / "notification.jupyterlab-settings").write_text('{"fetchNews": "false"}')
    notebook = json.loads((ROOT / "notebooks" / "01_quickstart.ipynb").read_text())
    ids = [cell["id"] for cell in notebook["cells"]]
    notebook["cells"] = notebook["cells"][: ids.index(_LAST_CELL) + 1]
    search = notebook["cells"][-1]
    search["source"] = [f"{_LINE}\n", *search["source"][1:]]
    (folder / "work" / "quickstart.ipynb").write_text(json.dumps(notebook))


@contextmanager
def _lab(folder: Path) -> Iterator[str]:
    """A JupyterLab server; afterwards it, its kernel and the kernel's clusters are gone."""
    port, token = _free_port(), secrets.token_hex(16)
    address = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1"]
    command += [f"--port={port}", f"--ServerApp.root_dir={folder}/work"]
    command += [f"--IdentityProvider.token={token}", "--LabApp.expose_app_in_browser=True"]
    command += ["--LabApp.extension_manager=readonly"]
    with (folder / "lab.log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
    try:
        _wait_for(f"{address}/api?token={token}", server)
        yield f"{address}/lab/tree/quickstart.ipynb?token={token}&reset"
    finally:
        server.terminate()
        server.wait(timeout=30)
        _stop_clusters()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(address: str, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _WAIT_S
    while server.poll() is None and time.monotonic() < deadline:
        try:
            urllib.request.urlopen(address, timeout=5).close()
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.2)
        else:
            return
    raise SystemExit("JupyterLab did not start")


def _stop_clusters() -> None:
    from jupyter_ddl.client.clusters import list_clusters

    for cluster in list_clusters():
        cluster.stop()


@contextmanager
def _page(browser: str, address: str) -> Iterator[Page]:
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        page = chromium.new_page(
            viewport={"width": _WIDTH, "height": _HEIGHT}, device_scale_factor=1.5
        )
        page.set_default_timeout(_WAIT_S * 1000)
        page.goto(address)
        yield page
        chromium.close()


def _run_all(page: Page) -> None:
    """Run all cells; returns when the first trial of the search has ended."""
    page.wait_for_selector(_SEARCH_CELL)
    # The toolbar calls the kernel idle before there is a session: ask the session itself.
    page.evaluate(
        "async () => { const panel = window.jupyterapp.shell.currentWidget;"
        " await panel.revealed; await panel.sessionContext.ready; }"
    )
    _execute(page, "application:toggle-left-area")
    _execute(page, "notebook:run-all-cells", wait=False)
    _wait_for_trials(page, 1)


def _film(page: Page) -> dict[str, list[Image.Image]]:
    """Frames of both themes, one pair per few trials and one of the end."""
    films: dict[str, list[Image.Image]] = {theme: [] for theme in _THEMES}
    for n_trials in (*range(1, _N_TRIALS, _TRIALS_PER_FRAME), _N_TRIALS):
        _wait_for_trials(page, n_trials)
        for theme, name in _THEMES.items():
            films[theme].append(_frame(page, name))
    return films


def _wait_for_trials(page: Page, least: int) -> None:
    page.wait_for_function(
        "least => { const text = document.querySelector('.jp-Notebook').innerText;"
        f" const done = text.match(/(\\d+) of {_N_TRIALS} trials/);"
        " return done && Number(done[1]) >= least; }",
        arg=least,
    )


def _execute(page: Page, command: str, arguments: Any = None, *, wait: bool = True) -> None:
    call = "window.jupyterapp.commands.execute(name, values)"
    body = f"return {call}.then(() => null)" if wait else f"void {call}"
    page.evaluate(f"([name, values]) => {{ {body}; }}", [command, arguments or {}])


def _frame(page: Page, theme: str) -> Image.Image:
    """The upper part of the cell in a theme."""
    _execute(page, "apputils:change-theme", {"theme": theme})
    is_light = "true" if "Light" in theme else "false"
    page.wait_for_function(f"() => document.body.dataset.jpThemeLight === '{is_light}'")
    cell = page.locator(_SEARCH_CELL).last
    cell.evaluate("cell => cell.scrollIntoView({ block: 'start' })")
    box = cell.bounding_box()
    if box is None:
        raise SystemExit("the cell is not to be seen")
    area = {"x": box["x"], "y": box["y"], "width": box["width"], "height": _SHOWN_HEIGHT}
    taken = page.screenshot(clip=area, animations="disabled")
    return Image.open(io.BytesIO(taken)).convert("RGB")


def _save(frames: list[Image.Image], target: Path) -> None:
    """An animated WebP that stays on its last frame for a while, and begins again."""
    durations = [*[_FRAME_MS] * (len(frames) - 1), _LAST_MS]
    first, *others = frames
    first.save(
        target, save_all=True, append_images=others, duration=durations, loop=0,
        quality=_QUALITY, method=6,
    )  # fmt: skip
    n_bytes = target.stat().st_size
    if n_bytes > _MAX_BYTES:
        raise SystemExit(f"{target} has {n_bytes:,} bytes; at most {_MAX_BYTES:,} are wanted")
    print(f"{target}: {len(frames)} frames, {n_bytes / 1000:.0f} kB")


if __name__ == "__main__":
    sys.exit(main())
