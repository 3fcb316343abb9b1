"""How soon the view of a cell follows its run again, whatever has become of what it stood on."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import psutil

from bench.browser import search_in_browser
from bench.harness import Goal, Line, Probe, Row, is_quick, tell

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.browser.lab_tools import Lab

_N_TRIES = 25
_NIGHT_S = 12.0
"""A laptop has to be closed for longer than the silence after which a page asks."""
_BUDGET_S = 450.0
"""A busy machine makes fewer tries, which is told."""
_N_NIGHTLY = 100
"""Less than what two workers report in a night."""
_GOAL_S = 2.0
_VIEW = ".jp-ddl-cell .ddl-live[data-run]"
_SEQ = f"() => Number(document.querySelector({_VIEW!r})?.dataset.seq ?? -1)"
# Counted where it appears, however soon it is gone again.
_COUNT = """() => {
  const wrong = /Error displaying widget|model not found/i;
  sessionStorage.wrong ??= "0";
  const look = () => {
    const has = wrong.test(document.querySelector(".jp-Notebook")?.textContent ?? "");
    if (has && !window.isWrong) sessionStorage.wrong = String(Number(sessionStorage.wrong) + 1);
    window.isWrong = has;
  };
  const begin = () => new MutationObserver(look).observe(
    document.documentElement, { childList: true, subtree: true, characterData: true });
  if (document.documentElement) begin();
  else document.addEventListener("DOMContentLoaded", begin);
}"""
_SAVE = "() => window.jupyterapp.commands.execute('docmanager:save')"
_RESTART = (
    "async () => { const panel = window.jupyterapp.shell.currentWidget;"
    " await panel.sessionContext.session.kernel.restart(); }"
)
_CLOSE = (
    "async () => { const panel = window.jupyterapp.shell.currentWidget;"
    " const path = panel.context.path; await panel.context.save();"
    " await panel.sessionContext.shutdown(); panel.dispose(); return path; }"
)
_OPEN = "path => { void window.jupyterapp.commands.execute('docmanager:open', { path }); }"


def _probe(kind: str) -> Probe:
    return Probe("bench.rows.cell_alive", (kind,), 2 * _BUDGET_S)


_KINDS = {
    "kernel": "the kernel is restarted",
    "server": "the server is restarted",
    "reload": "the page is loaded again",
    "reopen": "the notebook is closed with its kernel, and opened",
    "laptop": f"a laptop is closed for {_NIGHT_S:g} s, its connections dead",
}

ROW = Row(
    name="cell_alive",
    title="A cell's view follows its run again, after …",
    better="lower",
    repeats=2,
    warmups=0,
    note=(
        f"Headless Chromium, a search that goes on; up to {_N_TRIES} tries of each in each round. "
        "Seconds until the view shows news of the run: from the "
        "restarted kernel, from the server's first answer, from the notebook's cells in sight, "
        "from the opened lid. While the laptop is closed its browser stands still, and what is "
        "between that and the server takes everything and passes nothing on, as a network does "
        "that has forgotten a connection."
    ),
    lines=tuple(
        line
        for kind, text in _KINDS.items()
        for line in (
            Line(f"{text}: median", _probe(kind), "alive_s", "s"),
            Line("… slowest of a round", _probe(kind), "slowest_s", "s", Goal(_GOAL_S, "lower")),
            Line("… “model not found”", _probe(kind), "n_wrong", "", Goal(0, "lower")),
            Line("… tries", _probe(kind), "n_tries", ""),
        )
    ),
)


def main() -> None:
    kind = sys.argv[1]
    with search_in_browser("alive.ipynb", n_steps=100) as (lab, page, _):
        page.wait_for_selector(_VIEW)
        page.evaluate(_SAVE)
        page.context.add_init_script(f"({_COUNT})()")
        page.evaluate(_COUNT)
        if kind == "laptop":
            took_s = _nights(page, lab)
        else:
            try_once = {"kernel": _kernel, "server": _server, "reload": _reload, "reopen": _reopen}
            took_s = [try_once[kind](page, lab) for _ in _turns(_N_TRIES)]
        n_wrong = page.evaluate("() => Number(sessionStorage.wrong ?? 0)")
    tell(
        {
            "alive_s": took_s,
            "slowest_s": max(took_s),
            "n_wrong": n_wrong,
            "n_tries": len(took_s),
        }
    )


def _turns(most: int) -> Iterator[None]:
    """One for each try that there is time for."""
    until_s = time.monotonic() + _BUDGET_S
    for number in range(2 if is_quick() else most):
        if number == 0 or time.monotonic() < until_s:
            yield


def _news(page: Page, since: int) -> None:
    """Wait until the view shows another state of the run than `since`."""
    page.wait_for_function(f"since => ({_SEQ})() > since", arg=since, polling=20)


def _timed(page: Page, since: int) -> float:
    began = time.perf_counter()
    _news(page, since)
    return time.perf_counter() - began


def _kernel(page: Page, _: Lab) -> float:
    page.evaluate(_RESTART)
    return _timed(page, page.evaluate(_SEQ))


def _server(page: Page, lab: Lab) -> float:
    lab.stop()
    seq = page.evaluate(_SEQ)
    lab.start()
    return _timed(page, seq)


def _reload(page: Page, _: Lab) -> float:
    page.reload()
    page.wait_for_selector(".jp-NotebookPanel .jp-Cell")
    return _timed(page, 0)


def _reopen(page: Page, _: Lab) -> float:
    path = page.evaluate(_CLOSE)
    page.wait_for_selector(_VIEW, state="detached")
    page.evaluate(_OPEN, path)
    page.wait_for_selector(".jp-NotebookPanel .jp-Cell")
    took_s = _timed(page, 0)
    page.evaluate(
        "async () => { await window.jupyterapp.shell.currentWidget.sessionContext.ready; }"
    )
    return took_s


def _nights(page: Page, lab: Lab) -> list[float]:
    with _Road(lab.port) as road:
        page.goto(f"http://127.0.0.1:{road.port}/lab/tree/alive.ipynb?token={lab.token}&reset")
        page.wait_for_selector(_VIEW)
        _news(page, 0)
        took_s = []
        for _ in _turns(_N_TRIES):
            seq = page.evaluate(_SEQ)
            stopped = _browser_processes()
            for process in stopped:
                process.suspend()
            road.forget()
            time.sleep(_NIGHT_S)
            road.is_open = True
            began = time.perf_counter()
            for process in stopped:
                process.resume()
            # Not what had come before the night, and was not read any more.
            _news(page, seq + _N_NIGHTLY)
            took_s.append(time.perf_counter() - began)
    return took_s


def _browser_processes() -> list[psutil.Process]:
    """Of the browser that this process has started."""
    found = psutil.Process().children(recursive=True)
    return [each for each in found if "chrom" in each.name()]


class _Road:
    """Between page and server; it can forget the connections that go over it, and tells nobody."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.is_open = True
        self._ends: list[socket.socket] = []
        self._age = 0

    def __enter__(self) -> _Road:
        _thread(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        for each in (self._listener, *self._ends):
            each.close()

    def forget(self) -> None:
        """From now on nothing comes through, on old connections never again."""
        self.is_open = False
        self._age += 1

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._to))
            except OSError:
                return
            self._ends += [near, far]
            age = self._age
            _thread(lambda a=near, b=far, age=age: self._carry(a, b, age))
            _thread(lambda a=far, b=near, age=age: self._carry(a, b, age))

    def _carry(self, source: socket.socket, target: socket.socket, age: int) -> None:
        try:
            while data := source.recv(1 << 16):
                if age == self._age and self.is_open:
                    target.sendall(data)
            if age == self._age:
                target.shutdown(socket.SHUT_WR)
        except OSError:
            return


def _thread(action: Callable[[], None]) -> None:
    threading.Thread(target=action, daemon=True).start()


if __name__ == "__main__":
    main()
