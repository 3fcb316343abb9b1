"""What is done to services of frameworks; ``tests/real`` asks the sockets of the real ones."""

from __future__ import annotations

import socket
import sys
from types import ModuleType

import pytest

from jupyter_ddl.ranks.remote_calls import close_services


class _State:
    """JAX's, whose coordinator is a server of gRPC: it sets both options that share a port."""

    listener: socket.socket

    def initialize(self) -> None:
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(8)


def test_nobody_reaches_jaxs_coordinator_once_its_processes_have_met(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = ModuleType("jax._src.distributed")
    monkeypatch.setattr(module, "State", _State, raising=False)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    close_services()
    state = _State()
    state.initialize()
    with state.listener, pytest.raises(TimeoutError):
        socket.create_connection(state.listener.getsockname(), timeout=0.3)
