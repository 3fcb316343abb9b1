"""What a kernel makes of a controller that dies while it is asked."""

from __future__ import annotations

import sys

import pytest

from jupyter_ddl.client import session as module
from jupyter_ddl.client.session import Session
from jupyter_ddl.errors import ControllerError
from jupyter_ddl.protocol.cluster import ClusterSpec
from jupyter_ddl.protocol.requests import GetStatus
from jupyter_ddl.store.connection import ConnectionInfo, socket_path
from jupyter_ddl.store.processes import this_process
from tests.leaks import Home


def test_a_controller_that_dies_between_two_looks_is_lost_and_not_unknown(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = ConnectionInfo("test", str(socket_path("test")), this_process(), "0", 0.0)
    for ask in (
        lambda session: session.watch("test", "r1"),
        lambda session: session.ask_controller_of("test", GetStatus()),
    ):
        seen = iter((info, None))
        monkeypatch.setattr(module, "read_connection", lambda _, seen=seen: next(seen))
        with pytest.raises(ControllerError, match="is not running"):
            ask(Session())


def test_a_controller_that_dies_before_it_has_said_a_word_is_lost_too(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(ControllerError, match="cluster test ended while starting"):
        Session().start(ClusterSpec(name="test", n_workers=1, prewarm=("numpy",)))
