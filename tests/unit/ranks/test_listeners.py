"""Where ranks have met nobody gets an answer later, but for NCCL, which answers its own."""

from __future__ import annotations

import socket

import pytest

from jupyter_ddl.ranks.listeners import closed_to_strangers


def _listening(*options: int) -> socket.socket:
    found = socket.socket()
    for option in options:
        found.setsockopt(socket.SOL_SOCKET, option, 1)
    found.bind(("127.0.0.1", 0))
    found.listen(8)
    return found


def _answers(listener: socket.socket) -> bool:
    try:
        socket.create_connection(listener.getsockname(), timeout=0.3).close()
    except TimeoutError:
        return False
    return True


@pytest.mark.parametrize(
    ("options", "is_answered"),
    [
        pytest.param((socket.SO_REUSEADDR,), False, id="as gloo and TensorPipe listen"),
        pytest.param((), True, id="as NCCL listens"),
        pytest.param(
            (socket.SO_REUSEADDR, socket.SO_REUSEPORT), True, id="as NCCL does at a port it is told"
        ),
    ],
)
def test_where_torch_has_connected_ranks(options: tuple[int, ...], is_answered: bool) -> None:
    before = _listening(socket.SO_REUSEADDR)
    with closed_to_strangers():
        listener = _listening(*options)
        assert _answers(listener)
    with before, listener:
        assert _answers(listener) == is_answered
        assert _answers(before), "what was open before is none of this"


def test_services_of_frameworks_answer_nobody_however_they_listen() -> None:
    """JAX's coordinator is one of gRPC, which listens as NCCL does at a port that it is told."""
    with closed_to_strangers(but_nccl=False):
        listener = _listening(socket.SO_REUSEADDR, socket.SO_REUSEPORT)
    with listener:
        assert not _answers(listener)
