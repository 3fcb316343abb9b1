"""The store across hosts: torch's stores are its model, and nobody without the token is served."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from jupyter_ddl.errors import LaunchError
from jupyter_ddl.protocol.framing import FrameSocket

pytest.importorskip("torch", reason="the store is asked by torch")
import torch.distributed as dist

from jupyter_ddl.ranks.token_store import StoreServer, TokenStore
from tests.until import PATIENCE_S

_PATIENCE = timedelta(seconds=PATIENCE_S)


@pytest.fixture
def port() -> int:
    return StoreServer(_bound(), "secret").port


def _bound() -> socket.socket:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    return listener


def _joined(port: int, token: str = "secret", timeout: timedelta = _PATIENCE) -> TokenStore:
    return TokenStore("127.0.0.1", port, token, timeout)


def _models(port: int) -> Iterator[Any]:
    yield dist.HashStore()
    yield _joined(port)
    yield dist.PrefixStore("of/torch", _joined(port))


def test_it_answers_as_torchs_own_store_does(port: int) -> None:
    def answers_of(store: Any) -> list[Any]:
        found: list[Any] = [store.set("a", "1"), store.get("a"), store.check(["a", "b"])]
        found += [store.add("n", 2), store.add("n", 3), store.get("n"), store.check(["a", "n"])]
        found += [store.compare_set("a", "0", "2"), store.compare_set("a", "1", "2")]
        found += [store.get("a"), store.compare_set("new", "", "3"), store.get("new")]
        found += [store.multi_set(["p", "q"], ["x", "y"]), store.multi_get(["q", "p"])]
        found += [store.append("q", "z"), store.get("q"), store.append("r", "w"), store.get("r")]
        found += [store.wait(["a", "p"]), store.wait(["a"], timedelta(seconds=9))]
        found += [store.delete_key("a"), store.delete_key("a"), store.check(["a"])]
        return found

    model, *ours = [answers_of(store) for store in _models(port)]
    assert ours == [model, model]
    assert _joined(port).num_keys() == 2 * len(["n", "new", "p", "q", "r"])
    assert dist.PrefixStore("of/torch", _joined(port)).num_keys() == 10


def test_whoever_waits_is_woken_by_whoever_sets(port: int) -> None:
    heard: list[bytes] = []
    waiting = threading.Thread(target=lambda: heard.append(_joined(port).get("late")))
    waiting.start()
    _joined(port).set("late", "here")
    waiting.join(PATIENCE_S)
    assert heard == [b"here"]


def test_a_wait_ends_with_torchs_error_and_the_store_goes_on(port: int) -> None:
    store = _joined(port)
    with pytest.raises(dist.DistStoreError, match="waited 0 s for never"):
        store.wait(["never"], timedelta(milliseconds=20))
    store.set("a", "1")
    assert store.get("a") == b"1"


def test_many_at_once_add_up(port: int) -> None:
    def count() -> None:
        store = _joined(port)
        for _ in range(50):
            store.add("n", 1)

    threads = [threading.Thread(target=count) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert _joined(port).get("n") == b"400"


def test_another_token_is_refused_in_a_line(port: int) -> None:
    with pytest.raises(LaunchError, match=f"127.0.0.1:{port} did not show its token: the conn"):
        _joined(port, "guessed")


def test_a_server_without_the_token_is_told_nothing() -> None:
    """It could be anybody who has got the port: it learns neither token nor keys."""
    heard: list[bytes | None] = []

    def pretend(listener: socket.socket) -> None:
        with listener.accept()[0] as accepted:
            frames = FrameSocket(accepted)
            frames.send_one(msgspec.msgpack.encode([b"c" * 32, b""]))
            heard.append(frames.receive())
            frames.send_one(msgspec.msgpack.encode([b"", b"p" * 32]))
            heard.append(frames.receive())

    with socket.create_server(("127.0.0.1", 0)) as listener:
        impostor = threading.Thread(target=pretend, args=(listener,))
        impostor.start()
        with pytest.raises(LaunchError, match="it has another one"):
            _joined(listener.getsockname()[1])
        impostor.join(PATIENCE_S)
    assert len(heard) == 2
    assert heard[0] is not None
    assert b"secret" not in heard[0]
    assert heard[1] is None


_REQUEST = msgspec.msgpack.encode(["set", ["k"], [b"v"], 0, 1.0])


@pytest.mark.parametrize(
    "said",
    [
        [b""],
        [_REQUEST],
        [b"\xff" * 64],
        [msgspec.msgpack.encode([b"x" * 32, b""]), _REQUEST],
        [msgspec.msgpack.encode([b"x" * 32, b"x" * 32]), _REQUEST],
    ],
)
def test_nothing_said_without_the_token_is_answered(port: int, said: list[bytes]) -> None:
    with socket.create_connection(("127.0.0.1", port)) as stranger:
        frames = FrameSocket(stranger)
        greeting = frames.receive()
        with contextlib.suppress(OSError):
            frames.send(said)
        assert greeting is not None
        assert len(greeting) < 64
        assert frames.receive() is None, "not even that it is wrong"
    assert not _joined(port).check(["k"])


def test_a_stranger_who_says_nothing_keeps_nobody_waiting(port: int) -> None:
    strangers = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
    store = _joined(port)
    store.set("a", "1")
    for stranger in strangers:
        stranger.close()


def test_a_request_that_fails_ends_its_connection_and_nobody_waits(port: int) -> None:
    store = _joined(port)
    store.set("word", "no number")
    with pytest.raises(dist.DistNetworkError, match="rank 0's store is gone"):
        store.add("word", 1)
    assert _joined(port).get("word") == b"no number"


def test_what_is_too_large_ends_the_connection_that_sent_it(port: int) -> None:
    with pytest.raises(dist.DistNetworkError, match="rank 0's store is gone"):
        _joined(port).set("k", b"x" * (17 << 20))
    assert not _joined(port).check(["k"])


def test_process_groups_meet_in_it(port: int) -> None:
    """Gloo asks from C++, through torch's prefixes; one process is enough to see that it can."""
    dist.init_process_group("gloo", store=_joined(port), rank=0, world_size=1)
    try:
        dist.new_group([0])
        dist.barrier()
    finally:
        dist.destroy_process_group()
    assert _joined(port).num_keys() > 0
