"""What the kernel tells of a connection whose other end can't be reached."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from jupyter_ddl.worker.silent_peers import silent_peers
from tests.integration.network.wire import Host, Link, Wire, wire_of
from tests.until import until

pytestmark = pytest.mark.integration

_DEAF = """
import socket, sys
server = socket.create_server((sys.argv[1], 0))
print(server.getsockname()[1], flush=True)
connection, _ = server.accept()
sys.stdin.read()
"""
"""Takes a connection and reads nothing of it."""


@pytest.fixture
def line() -> Iterator[tuple[Wire, Host, Host, socket.socket]]:
    """This process, connected to one on another host."""
    with wire_of() as wire:
        here, there = wire.host(is_here=True), wire.host()
        command = [*there.enter, sys.executable, "-c", _DEAF, there.address]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            with socket.create_connection((there.address, port)) as connection:
                yield wire, here, there, connection
            process.kill()


def test_a_host_behind_a_cut_is_silent_and_one_that_does_not_read_is_not(
    line: tuple[Wire, Host, Host, socket.socket],
) -> None:
    _, here, there, connection = line
    hosts = (here.address, there.address, "localhost")
    connection.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:  # until it takes no more, since nobody reads
            connection.send(b"x" * 65536)
    until(lambda: silent_peers(os.getpid(), hosts) == (), 5)
    for _ in range(20):
        assert silent_peers(os.getpid(), hosts) == ()


def test_what_is_cut_is_silent_for_as_long_as_that_lasts(
    line: tuple[Wire, Host, Host, socket.socket],
) -> None:
    wire, here, there, connection = line
    hosts = (here.address, there.address)
    connection.sendall(b"heard")
    with wire.between(here, there, Link(is_cut=True)):
        connection.sendall(b"lost")
        until(lambda: silent_peers(os.getpid(), hosts) == (there.address,), 5)
        assert silent_peers(os.getpid(), ("192.0.2.1",)) == ()
    until(lambda: silent_peers(os.getpid(), hosts) == (), 30)


def test_a_host_that_was_never_heard_of_is_silent_while_one_asks_to_connect(
    line: tuple[Wire, Host, Host, socket.socket],
) -> None:
    wire, here, there, connection = line
    hosts = (here.address, there.address)
    with wire.between(here, there, Link(is_cut=True)), socket.socket() as asking:
        asking.setblocking(False)
        assert asking.connect_ex(connection.getpeername()) == errno.EINPROGRESS
        until(lambda: silent_peers(os.getpid(), hosts) == (there.address,), 10)
