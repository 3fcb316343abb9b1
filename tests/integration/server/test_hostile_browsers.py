"""Nonsense from a browser is refused and counted, and costs nobody else anything."""

from __future__ import annotations

import contextlib
import json
import random
import string
import struct
from typing import Any

import psutil
import pytest
import websocket

from jupyter_ddl.server.hub import MAX_WATCHED
from tests.integration.server.jupyter_process import API, Browser, JupyterServer
from tests.run_tools import start_map
from tests.until import PATIENCE_S

pytestmark = pytest.mark.integration

N_MESSAGES = 20_000
KINDS = [
    "again", "seen", "watch", "unwatch", "stop_run", "stop_trial", "get_columns", "get_log",
    "watch_cluster", "unwatch_cluster", "scale_cluster", "stop_cluster", "get_cluster_log", "have",
    "start_cluster",
]  # fmt: skip
NAMES = ["id", "run_id", "cluster", "trial", "seq", "how", "n_workers", "kind", "since", "contains"]


def anything(rng: random.Random, depth: int = 0) -> Any:
    """A JSON value, hardly ever what is expected."""
    match rng.randrange(9 if depth < 4 else 7):
        case 0:
            return rng.choice([None, True, False])
        case 1:
            return rng.choice([0, -1, 2**31, 2**63, 2**64, -(2**63) - 1, 10**400])
        case 2:
            return rng.choice([0.5, -0.0, 1e308, 5e-324])
        case 3 | 4:
            return "".join(rng.choices(string.printable, k=rng.randrange(40)))
        case 5:
            return rng.choice(
                ["../..", "\u0000", "<script>", "\ud800", "a" * 3000, "NaN", "__proto__"]
            )
        case 6:
            return rng.choice(KINDS)
        case 7:
            return [anything(rng, depth + 1) for _ in range(rng.randrange(5))]
        case _:
            names = rng.sample(NAMES, rng.randrange(5))
            return {name: anything(rng, depth + 1) for name in names}


def hostile(rng: random.Random) -> tuple[int, bytes]:
    """Opcode and payload of one frame."""
    kind = rng.randrange(10)
    if kind < 5:
        fields = {name: anything(rng) for name in rng.sample(NAMES, rng.randrange(6))}
        # Not a valid start: this test has no use for clusters.
        fields |= {"kind": rng.choice(KINDS[:-1]) if kind else anything(rng)}
        text = json.dumps(fields).encode("utf-8", "replace")
        if kind == 4:  # cut, or with a byte changed
            at = rng.randrange(len(text))
            text = text[:at] if rng.random() < 0.5 else text[:at] + b"\x07" + text[at + 1 :]
        return websocket.ABNF.OPCODE_TEXT, text
    if kind == 5:
        return websocket.ABNF.OPCODE_TEXT, b"[" * rng.choice([10, 1000, 15_000])
    if kind == 6:
        deep = b'{"kind":' * rng.choice([5, 2000])
        return websocket.ABNF.OPCODE_TEXT, deep + b"1" + b"}" * deep.count(b"{")
    if kind == 7:
        return websocket.ABNF.OPCODE_BINARY, rng.randbytes(rng.randrange(200))
    if kind == 8:
        number = b"9" * rng.choice([20, 400, 5000])
        return websocket.ABNF.OPCODE_TEXT, b'{"kind":"again","seq":' + number + b"}"
    return websocket.ABNF.OPCODE_TEXT, rng.choice([b"", b"null", b"{}", b'"x"', b"\x00", b"1e999"])


def attack(server: JupyterServer, rng: random.Random, n_messages: int) -> bool:
    """Send hostile frames over one connection; whether it was ended for them."""
    browser = server.connect()
    try:
        for _ in range(n_messages):
            opcode, payload = hostile(rng)
            browser.socket.send(payload, opcode)
        browser.socket.settimeout(PATIENCE_S)
        return closing(browser)[0] == 1008
    except websocket.WebSocketTimeoutException:
        return False
    finally:
        browser.close()


def n_refused(idle_server: JupyterServer) -> int:
    return int(json.loads(idle_server.ask(f"{API}/status").body)["n_refused"])


def test_twenty_thousand_hostile_messages_are_refused_and_counted(
    idle_server: JupyterServer,
) -> None:
    witness = idle_server.connect()
    witness.wait_kind("runs")
    process = psutil.Process(idle_server.process.pid)
    before = process.memory_info().rss
    n_ended = sum(attack(idle_server, random.Random(n), 200) for n in range(N_MESSAGES // 200))
    assert n_ended == N_MESSAGES // 200
    assert n_refused(idle_server) > 100 * n_ended
    assert process.memory_info().rss - before < 64 << 20
    assert process.is_running()
    answer = witness.ask("get_cluster_log", cluster="none")
    assert answer["code"] == "DDL-3001"
    assert "Traceback" not in idle_server.log.read_text()
    witness.close()


def test_one_mistake_is_told_and_many_end_the_connection(idle_server: JupyterServer) -> None:
    browser = idle_server.connect()
    browser.socket.send("no json")
    told = browser.wait_kind("denied")
    assert (told["id"], told["code"]) == (0, "DDL-6001")
    assert browser.ask("get_columns", run_id="r0000-none")["code"] == "DDL-5003"
    for _ in range(120):
        browser.socket.send_binary(b"\x00")
    assert closing(browser) == (1008, "too many messages that are malformed or too frequent")


def test_a_message_that_is_too_large_ends_the_connection(idle_server: JupyterServer) -> None:
    browser = idle_server.connect()
    browser.socket.send('{"kind":"again","seq":1,"x":"' + "x" * (70 << 10) + '"}')
    # Without that code when the server has gone before it was told everything.
    with contextlib.suppress(OSError, websocket.WebSocketConnectionClosedException):
        assert closing(browser)[0] == 1009
    assert idle_server.ask(f"{API}/status").status == 200


def test_a_flood_of_good_messages_is_limited(idle_server: JupyterServer) -> None:
    browser = idle_server.connect()
    before = n_refused(idle_server)
    for _ in range(60):
        browser.send("again", seq=0)
    browser.wait_kind("denied")
    assert 0 < n_refused(idle_server) - before <= 45


def test_a_tab_watches_only_so_much(own_cluster: object, browser: Browser) -> None:
    runs = [start_map("item", [1]).wait(PATIENCE_S) for _ in range(MAX_WATCHED + 1)]
    answers = [browser.ask("watch", run_id=run.id) for run in runs]
    assert [answer["kind"] for answer in answers] == ["done"] * MAX_WATCHED + ["denied"]
    assert answers[-1]["code"] == "DDL-6002"
    browser.ask("unwatch", run_id=runs[0].id)
    assert browser.ask("watch", run_id=runs[-1].id)["kind"] == "done"


def closing(browser: Browser) -> tuple[int, str]:
    """Code and reason of the close frame, whatever comes before it."""
    while True:
        opcode, data = browser.socket.recv_data(control_frame=True)
        if opcode == websocket.ABNF.OPCODE_CLOSE:
            return struct.unpack(">H", data[:2])[0], data[2:].decode()
