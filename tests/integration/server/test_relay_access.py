"""Who may talk to the extension: Jupyter's own user, from Jupyter's own pages."""

from __future__ import annotations

import json
from typing import Any

import pytest
import websocket

from jupyter_ddl.server.hub import MAX_CONNECTIONS
from jupyter_ddl.store.paths import run_dir
from jupyter_ddl.store.timelines import keep_timeline
from tests.integration.server.jupyter_process import API, Browser, JupyterServer, serving
from tests.leaks import Home
from tests.run_tools import STEPS, start_search
from tests.until import PATIENCE_S

pytestmark = pytest.mark.integration

TRACE = f"{API}/runs/r1121-abcde/profiles/trial-0-a1-r0.json.gz"
ROUTES = [f"{API}/status", f"{API}/runs/r1121-abcde/export", TRACE, f"{API}/live"]
ROUTES += [f"{API}/timelines/{'0' * 64}"]


def refusal(server: JupyterServer, **options: Any) -> int:
    with pytest.raises(websocket.WebSocketBadStatusException) as caught:
        server.connect(**options)
    return int(caught.value.status_code)


def test_strangers_are_refused_on_every_route(idle_server: JupyterServer) -> None:
    for route in ROUTES:
        for path in (route, f"{route}?token=wrong"):
            assert idle_server.ask(path, token=False).status == 403, path
            assert idle_server.ask(path, token=False, method="POST").status == 403, path
    assert refusal(idle_server, token=False) == 403


def test_other_pages_cannot_use_the_cookies_of_a_user(idle_server: JupyterServer) -> None:
    cookie = idle_server.log_in()
    own = f"http://127.0.0.1:{idle_server.port}"
    browser = idle_server.connect(token=False, cookie=cookie, origin=own)
    assert browser.wait_kind("welcome")["version"]
    browser.close()
    for origin in ("http://evil.example", "null", f"{own}.evil.example"):
        assert refusal(idle_server, token=False, cookie=cookie, origin=origin) == 403, origin
    # DNS rebinding: the browser believes that the page's host is ours.
    evil = {"host": "evil.example", "origin": "http://evil.example"}
    assert refusal(idle_server, token=False, cookie=cookie, **evil) == 403
    assert refusal(idle_server, **evil) == 403
    page = {"Cookie": cookie, "Origin": "http://evil.example"}
    answer = idle_server.ask(f"{API}/status", token=False, **page)
    assert answer.status in (403, 404)
    assert "Access-Control-Allow-Origin" not in answer.headers
    # A form on another page carries the cookie, but not the token against forgery.
    for route in ROUTES:
        assert idle_server.ask(route, method="POST", token=False, Cookie=cookie).status == 403, (
            route
        )


def test_a_server_below_a_hub_answers_at_its_own_address(home: Home) -> None:
    with serving(home, base_url="/user/ann/") as server:
        assert server.ask(f"{API}/status").status == 200
        browser = server.connect()
        assert "local" in [each["name"] for each in browser.wait_kind("welcome")["backends"]]
        browser.close()


def test_a_timeline_is_given_by_its_digest_and_nothing_else_is(home: Home) -> None:
    with serving(home) as server:
        digest = keep_timeline(b"\x1f\x8b<script>")
        answer = server.ask(f"{API}/timelines/{digest}")
        assert (answer.status, answer.body) == (200, b"\x1f\x8b<script>")
        assert answer.headers["Content-Type"] == "application/octet-stream"
        for other in ("0" * 64, digest[:-1], f"..%2ftimelines%2f{digest}", "id"):
            assert server.ask(f"{API}/timelines/{other}").status == 404, other


def test_more_tabs_than_one_user_has_are_refused(idle_server: JupyterServer) -> None:
    tabs = [idle_server.connect() for _ in range(MAX_CONNECTIONS)]
    assert refusal(idle_server) == 429
    for tab in tabs:
        tab.close()


def test_a_recording_is_downloaded(
    own_cluster: object, server: JupyterServer, browser: Browser
) -> None:
    run = start_search(STEPS, 2).wait(PATIENCE_S)
    answer = server.ask(f"{API}/runs/{run.id}/export")
    head, *facts = (json.loads(line) for line in answer.body.splitlines())
    assert (head["type"], head["run_id"]) == ("recording", run.id)
    added = ("printed", "measured")
    assert sum(fact["type"] not in added for fact in facts) == len(run.events())
    assert answer.headers["Content-Disposition"] == f'attachment; filename="{run.id}.jsonl"'
    gone = server.ask(f"{API}/runs/r0000-none/export")
    assert (gone.status, json.loads(gone.body)["code"]) == (404, "DDL-5001")
    for path in ("..%2f..%2fetc%2fpasswd", "../status", "a/b", "%00"):
        assert server.ask(f"{API}/runs/{path}/export").status == 404


def test_a_trace_is_downloaded_and_nothing_beside_it(home: Home) -> None:
    folder = run_dir("r1121-abcde") / "profiles"
    folder.mkdir(parents=True)
    (folder / "trial-0-a1-r0.json.gz").write_bytes(b"\x1f\x8btrace")
    (folder.parent / "ledger.json.gz").write_bytes(b"private")
    others = ("other.json.gz", "..%2Fledger.json.gz", "../ledger.json.gz", ".x.json.gz", "a.pkl")
    with serving(home) as server:
        found = server.ask(TRACE)
        assert (found.status, found.body) == (200, b"\x1f\x8btrace")
        for name in others:
            assert server.ask(f"{API}/runs/r1121-abcde/profiles/{name}").status == 404, name
