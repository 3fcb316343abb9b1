"""Who may talk to a controller, its scheduler and its workers: this user's own clients only."""

from __future__ import annotations

import json
import os
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from jupyter_ddl.client.clusters import Cluster
from jupyter_ddl.protocol.requests import PROTOCOL_VERSION, Hello, Request
from jupyter_ddl.store.connection import connection_path, read_connection
from tests.leaks import Home
from tests.run_tools import SLEEPING, controller_pid, start_search, wait_for

pytestmark = pytest.mark.integration

NOBODY = 65534
_TLS_ALERT = 0x15


def as_nobody(work: Callable[[], Any]) -> Any:
    """What ``work`` returns in a process of another user."""
    receiver, sender = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            os.write(sender, json.dumps(work()).encode())
        except BaseException as error:  # noqa: BLE001 - this process ends here
            os.write(sender, json.dumps(f"failed: {error!r}").encode())
        finally:
            os._exit(0)
    os.close(sender)
    with os.fdopen(receiver, "rb") as file:
        text = file.read()
    os.waitpid(pid, 0)
    return json.loads(text)


def listening(root: psutil.Process) -> list[tuple[str, int]]:
    """Addresses on which a process and those below it accept connections from a network."""
    connections = (
        connection
        for process in [root, *root.children(recursive=True)]
        for connection in process.net_connections(kind="inet")
    )
    return [(c.laddr.ip, c.laddr.port) for c in connections if c.status == psutil.CONN_LISTEN]


def answer_of(address: tuple[str, int], request: bytes) -> bytes:
    with socket.create_connection(address, timeout=5) as plain:
        plain.settimeout(1.0)
        plain.sendall(request)
        try:
            return plain.recv(4096)
        except OSError:
            return b""


def answer_over_tls(address: tuple[str, int]) -> bytes:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with (
            socket.create_connection(address, timeout=5) as plain,
            context.wrap_socket(plain) as secure,
        ):
            secure.settimeout(1.0)
            secure.sendall(b"\0" * 64)
            return secure.recv(4096)
    except OSError:  # an alert: certificate required
        return b""


def answer_of_controller(path: str) -> str:
    frame = msgspec.msgpack.encode(Request(1, Hello(PROTOCOL_VERSION)))
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(5)
            client.connect(path)
            client.sendall(len(frame).to_bytes(4, "big") + frame)
            return f"{len(client.recv(4096))} bytes"
    except OSError as error:
        return type(error).__name__


def test_every_port_is_on_loopback_and_answers_no_stranger(cluster: Cluster) -> None:
    run = start_search(SLEEPING, 2)
    wait_for(run, lambda seen: seen.counts.running == 2)
    addresses = listening(psutil.Process(controller_pid()))
    assert len(addresses) >= 5  # a scheduler, two nannies, two workers
    assert {ip for ip, _ in addresses} == {"127.0.0.1"}
    for address in addresses:
        for request in (b"GET / HTTP/1.0\r\n\r\n", b"\0" * 64):
            answer = answer_of(address, request)
            assert answer == b"" or answer[0] == _TLS_ALERT, address
        assert answer_over_tls(address) == b"", address
    assert cluster.status().n_slots == 2


@pytest.mark.skipif(os.getuid() != 0, reason="becoming another user needs root")
def test_another_user_is_refused_by_every_socket(own_cluster: Cluster, home: Home) -> None:
    info = read_connection("test")
    assert info is not None
    path = info.socket
    assert as_nobody(lambda: answer_of_controller(path)) == "PermissionError"
    assert as_nobody(lambda: connection_path("test").exists()) != True  # noqa: E712
    # Even if somebody had opened the way to it.
    for directory in (home.runtime / "jupyter_ddl", home.runtime, home.root):
        directory.chmod(0o711)
    Path(path).chmod(0o666)
    refusals = ("0 bytes", "ConnectionResetError", "BrokenPipeError")
    assert as_nobody(lambda: answer_of_controller(path)) in refusals
    assert answer_of_controller(path).endswith(" bytes")
    for address in listening(psutil.Process(info.process.pid)):
        assert as_nobody(lambda at=address: len(answer_over_tls(at))) == 0
    assert own_cluster.status().n_slots == 2


def test_files_that_tell_the_way_are_for_their_owner_only(own_cluster: Cluster, home: Home) -> None:
    info = read_connection("test")
    assert info is not None
    modes = {
        connection_path("test"): 0o600,
        Path(info.socket): 0o600,
        home.runtime / "jupyter_ddl": 0o700,
        home.runtime / "jupyter_ddl" / "test.log": 0o600,
        home.data: 0o700,
        home.data / "runs": 0o700,
    }
    assert {path: path.stat().st_mode & 0o777 for path in modes} == modes
