"""Connections of a process group that are cut."""

from __future__ import annotations

import socket
import threading
import time

from jupyter_ddl.ranks.cells import Connections, waits_in_torch


def connected() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    ours.settimeout(5)
    return ours, theirs


def test_only_connections_that_were_recorded_are_cut() -> None:
    before = connected()
    connections = Connections()
    with connections.recorded():
        inside = connected()
    try:
        assert connections.cut(store_port=0) == 2
        assert inside[0].recv(1) == b""
        before[1].sendall(b"x")
        assert before[0].recv(1) == b"x"
    finally:
        for each in (*before, *inside):
            each.close()


def test_the_connection_to_the_store_stays() -> None:
    connections = Connections()
    with connections.recorded():
        inside = connected()
    try:
        assert connections.cut(store_port=inside[0].getpeername()[1]) == 0
        inside[1].sendall(b"x")
        assert inside[0].recv(1) == b"x"
    finally:
        for each in inside:
            each.close()


def test_a_thread_that_sleeps_does_not_wait_in_torch() -> None:
    over = threading.Event()
    thread = threading.Thread(target=over.wait, args=(5.0,))
    thread.start()
    try:
        deadline = time.monotonic() + 5
        while thread.ident is None and time.monotonic() < deadline:
            pass
        assert thread.ident is not None
        assert not waits_in_torch(thread.ident)
    finally:
        over.set()
        thread.join()
