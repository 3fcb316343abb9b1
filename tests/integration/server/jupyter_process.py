"""A real Jupyter server in a process of its own, and browsers that talk to it."""

from __future__ import annotations

import contextlib
import http.cookiejar
import json
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import websocket

from tests.column_frames import read_frame
from tests.leaks import Home
from tests.until import PATIENCE_S, until

API = "jupyter-ddl/api"
_TURN_S = 2.0
_EXTENSIONS = {
    "jupyter_ddl": True,
    "jupyterlab": False,  # the others take most of a start
    "jupyter_lsp": False,
    "jupyter_server_terminals": False,
    "notebook_shim": False,
}


@dataclass
class Answer:
    status: int
    body: bytes
    headers: Any


class JupyterServer:
    """Started in a home of a test; :meth:`stop` ends it as its user would.

    Parameters
    ----------
    base_url : str
        As JupyterHub gives it to a user's server.
    """

    def __init__(self, home: Home, *, base_url: str = "/") -> None:
        self._home = home
        self.token = secrets.token_hex(8)
        self._base_url = base_url
        self._browsers: list[Browser] = []
        self.log = home.root / f"server-{self.token}.log"
        options = {
            "ServerApp.port": 0,
            "ServerApp.base_url": base_url,
            "ServerApp.open_browser": False,
            "ServerApp.allow_root": True,
            "ServerApp.root_dir": home.work,
            "IdentityProvider.token": self.token,
            "ServerApp.jpserver_extensions": str(_EXTENSIONS),
        }
        words = [f"--{name}={value}" for name, value in options.items()]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "jupyter_server", *words],
                env=os.environ | home.variables(),
                stdout=log,
                stderr=log,
                cwd=home.work,
            )
        try:
            self.port = until(self._find_port, 90.0, f"the server, see {self.log}")
        except BaseException:
            self.kill()
            raise

    def _find_port(self) -> int | None:
        if self.process.poll() is not None:
            raise AssertionError(self.log.read_text())
        path = Path(self._home.runtime) / f"jpserver-{self.process.pid}.json"
        if not path.exists():
            return None
        # The file is there a moment before the server listens.
        with contextlib.suppress(json.JSONDecodeError, OSError):
            port = int(json.loads(path.read_text())["port"])
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
            return port
        return None

    def stop(self) -> None:
        for browser in self._browsers:
            browser.close()
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(PATIENCE_S)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def ask(self, path: str, *, method: str = "GET", token: bool = True, **headers: str) -> Answer:
        """One request; refusals are answers, too."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{self._base_url}{path}",
            method=method,
            data=b"{}" if method == "POST" else None,
            headers={name.replace("_", "-"): value for name, value in headers.items()},
        )
        if token:
            request.add_header("Authorization", f"token {self.token}")
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as reply:
                return Answer(reply.status, reply.read(), reply.headers)
        except urllib.error.HTTPError as error:
            return Answer(error.code, error.read(), error.headers)

    def log_in(self) -> str:
        """The cookies of a browser whose user has typed the token into Jupyter's own form."""
        jar = http.cookiejar.CookieJar(http.cookiejar.DefaultCookiePolicy(strict_domain=False))
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
        form = f"http://127.0.0.1:{self.port}{self._base_url}login"
        opener.open(form, timeout=PATIENCE_S).close()
        xsrf = next(cookie.value or "" for cookie in jar if cookie.name == "_xsrf")
        fields = urllib.parse.urlencode({"password": self.token, "_xsrf": xsrf})
        opener.open(form, fields.encode(), timeout=PATIENCE_S).close()
        return "; ".join(f"{cookie.name}={cookie.value}" for cookie in jar)

    def connect(self, *, token: bool = True, **options: Any) -> Browser:
        """A websocket; raises ``websocket.WebSocketBadStatusException`` when it is refused."""
        credentials = f"?token={self.token}" if token else ""
        url = f"ws://127.0.0.1:{self.port}{self._base_url}{API}/live{credentials}"
        browser = Browser(websocket.create_connection(url, timeout=PATIENCE_S, **options))
        self._browsers.append(browser)
        return browser


_STATES = ("clusters", "runs")


class Browser:
    """One open panel."""

    def __init__(self, socket: websocket.WebSocket) -> None:
        self.socket = socket
        self._id = 0
        self.seen: list[dict[str, Any]] = []

    def send(self, kind: str, **fields: Any) -> None:
        self.socket.send(json.dumps({"kind": kind, **fields}))

    def ask(self, kind: str, timeout_s: float = PATIENCE_S, **fields: Any) -> dict[str, Any]:
        """Send a request, and return what answers it in the end."""
        self._id += 1
        self.send(kind, id=self._id, **fields)
        number = self._id
        return self.wait(lambda m: m.get("id") == number and m["kind"] != "progress", timeout_s)

    def next(self, timeout_s: float = PATIENCE_S) -> dict[str, Any]:
        self.socket.settimeout(max(0.01, timeout_s))
        text = self.socket.recv()
        if not text:
            raise ConnectionError(f"closed: {self.close_reason}")
        message: dict[str, Any] = read_frame(text) if isinstance(text, bytes) else json.loads(text)
        self.seen.append(message)
        return message

    close_reason = ""

    def wait(
        self, wanted: Callable[[dict[str, Any]], bool], timeout_s: float = PATIENCE_S
    ) -> dict[str, Any]:
        """The first message from now on that is wanted."""
        deadline = time.monotonic() + timeout_s
        while (left := deadline - time.monotonic()) > 0:
            try:
                # In short turns: the server's pings begin the time of a long one anew, for ever.
                message = self.next(min(left, _TURN_S))
            except websocket.WebSocketTimeoutException:
                continue
            if wanted(message):
                return message
        kinds = [each["kind"] for each in self.seen[-20:]]
        raise AssertionError(f"not within {timeout_s:g} s; last: {self.seen[-1:]} after {kinds}")

    def wait_kind(
        self,
        kind: str,
        wanted: Callable[[dict[str, Any]], bool] | None = None,
        timeout_s: float = PATIENCE_S,
    ) -> dict[str, Any]:
        """The first message of a kind from now on that is wanted.

        One that tells how things are is told when that changes: the newest, too, may be it.
        """
        if wanted is None:
            return self.wait(lambda m: m["kind"] == kind, timeout_s)
        newest = next((m for m in reversed(self.seen) if m["kind"] == kind), None)
        if kind in _STATES and newest is not None and wanted(newest):
            return newest
        return self.wait(lambda m: m["kind"] == kind and wanted(m), timeout_s)

    def watch_run(
        self, run_id: str, wanted: Callable[[dict[str, Any]], bool], timeout_s: float = PATIENCE_S
    ) -> dict[str, Any]:
        """The first snapshot of a watched run that is wanted."""
        found = self.wait_kind(
            "run",
            lambda m: m["snapshot"]["run_id"] == run_id and wanted(m["snapshot"]),
            timeout_s,
        )
        snapshot: dict[str, Any] = found["snapshot"]
        return snapshot

    def close(self) -> None:
        self.socket.close(timeout=1)
        self.socket.shutdown()  # close() leaves one open whose connection has ended


@contextlib.contextmanager
def serving(home: Home, **options: Any) -> Iterator[JupyterServer]:
    server = JupyterServer(home, **options)
    try:
        yield server
    finally:
        server.stop()
