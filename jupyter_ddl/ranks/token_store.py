"""The store of ranks on several hosts: a key-value server in rank 0 that knows its own.

Torch's ``TCPStore`` answers whoever reaches its port, and what ranks find in it tells them where to
connect and what to unpickle.  Here both ends show that they have the round's token before anything
else is said (HMAC-SHA256 of fresh challenges, RFC 2104): neither is the token ever sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import os
import socket
import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Literal, TypeAlias

import msgspec
import torch.distributed as dist

from jupyter_ddl.errors import LaunchError, ProtocolError
from jupyter_ddl.protocol.framing import FrameSocket, encode_frame, read_frame
from jupyter_ddl.protocol.reading import msgpack_decoder

__all__ = ["StoreServer", "TokenStore"]

_CHALLENGE_BYTES = 32
_MAX_GREETING_BYTES = 1024
_MAX_REQUEST_BYTES = 16 << 20
_GREETING_S = 10.0
"""Who has not shown the token by then is sent away."""
_GRACE_S = 5.0
"""How much longer than the server a rank waits for the server's answer."""


class _Request(msgspec.Struct, array_like=True):
    what: Literal["set", "get", "add", "swap", "check", "wait", "delete", "count", "append"]
    keys: list[str] = []
    values: list[bytes] = []
    number: int = 0
    wait_s: float = 0.0


_Found: TypeAlias = list[bytes] | int | bool | None


class _Reply(msgspec.Struct, array_like=True):
    found: _Found = None
    is_late: bool = False


class _Greeting(msgspec.Struct, array_like=True):
    challenge: bytes
    proof: bytes = b""


_kept: list[TokenStore] = []
"""For the life of the process: what torch makes of a store keeps alive its half in C++ alone."""

_greeting = msgpack_decoder(_Greeting)
_request = msgpack_decoder(_Request)
_reply = msgpack_decoder(_Reply)
_encode = msgspec.msgpack.Encoder().encode


def _proof(token: str, side: str, challenge: bytes) -> bytes:
    return hmac.new(token.encode(), side.encode() + challenge, hashlib.sha256).digest()


class StoreServer:
    """Serves one round's store from a thread, for as long as this process lives.

    Parameters
    ----------
    listener : socket.socket
        Bound; this takes it over.
    token : str
        What ranks must have; nobody is served without it.
    """

    def __init__(self, listener: socket.socket, token: str) -> None:
        self._token = token
        self._data: dict[str, bytes] = {}
        self._changed: asyncio.Condition
        self.port = int(listener.getsockname()[1])
        listener.listen(1024)
        thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(listener)), name="store", daemon=True
        )
        thread.start()

    async def _serve(self, listener: socket.socket) -> None:
        self._changed = asyncio.Condition()
        server = await asyncio.start_server(self._admit, sock=listener)
        await server.serve_forever()

    async def _admit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        gone = (OSError, asyncio.IncompleteReadError, ProtocolError, TimeoutError)
        # A request that fails ends the connection: its rank must not wait for the answer.
        with contextlib.closing(writer), contextlib.suppress(*gone, msgspec.DecodeError):
            writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            async with asyncio.timeout(_GREETING_S):
                is_ours = await self._greet(reader, writer)
            while is_ours:
                request = _request.decode(await read_frame(reader, _MAX_REQUEST_BYTES))
                writer.write(encode_frame(_encode(await self._answer(request))))

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether the other end has the token; it is shown ours only then."""
        challenge = os.urandom(_CHALLENGE_BYTES)
        writer.write(encode_frame(_encode(_Greeting(challenge))))
        theirs = _greeting.decode(await read_frame(reader, _MAX_GREETING_BYTES))
        if not hmac.compare_digest(theirs.proof, _proof(self._token, "rank", challenge)):
            return False
        proof = _proof(self._token, "store", theirs.challenge)
        writer.write(encode_frame(_encode(_Greeting(b"", proof))))
        return True

    async def _answer(self, asked: _Request) -> _Reply:
        if asked.what in ("get", "wait"):
            return await self._waited(asked)
        async with self._changed:
            found = self._applied(asked)
            self._changed.notify_all()
        return _Reply(found)

    async def _waited(self, asked: _Request) -> _Reply:
        """Until all keys are there."""
        try:
            async with asyncio.timeout(asked.wait_s), self._changed:
                await self._changed.wait_for(lambda: self._has(asked))
        except TimeoutError:
            return _Reply(is_late=True)
        return _Reply([self._data[key] for key in asked.keys] if asked.what == "get" else None)

    def _has(self, asked: _Request) -> bool:
        return all(key in self._data for key in asked.keys)

    def _applied(self, asked: _Request) -> _Found:
        key = asked.keys[0] if asked.keys else ""
        match asked.what:
            case "set":
                self._data.update(zip(asked.keys, asked.values, strict=True))
            case "append":
                self._data[key] = self._data.get(key, b"") + asked.values[0]
            case "add":
                total = int(self._data.get(key, b"0")) + asked.number
                self._data[key] = str(total).encode()
                return total
            case "swap":
                # A key that is not there is set where nothing was expected, as torch's stores do.
                expected, desired = asked.values
                if self._data.get(key, b"") == expected:
                    self._data[key] = desired
                return [self._data.get(key, expected)]
            case "check":
                return self._has(asked)
            case "delete":
                return self._data.pop(key, None) is not None
            case "count":
                return len(self._data)
        return None


class TokenStore(dist.Store):  # type: ignore[misc]  # torch is not typed here
    """One rank's connection to a :class:`StoreServer`, as torch asks a store.

    Any thread may use it; while one waits for a key, others wait for it.

    Parameters
    ----------
    host, port
        Where rank 0 serves.
    token : str
        The round's.
    timeout : datetime.timedelta
        Of every wait that has none of its own, and of the connection.

    Raises
    ------
    LaunchError
        Nobody is there by the deadline, or it does not have the token.
    """

    def __init__(self, host: str, port: int, token: str, timeout: timedelta) -> None:
        super().__init__()
        self.set_timeout(timeout)
        self._place = (host, port, token, timeout)
        self._asking = threading.Lock()
        self._socket = _connected(host, port, timeout.total_seconds())
        self._frames = FrameSocket(self._socket)
        try:
            self._greet(token)
        except (OSError, ProtocolError, msgspec.DecodeError) as error:
            self._socket.close()
            raise LaunchError(
                f"the store of this rank group at {host}:{port} did not show its token: {error}; "
                "another program has that port, or this rank belongs to another round"
            ) from error
        _kept.append(self)

    def _greet(self, token: str) -> None:
        self._socket.settimeout(_GREETING_S)
        theirs = _greeting.decode(self._received())
        challenge = os.urandom(_CHALLENGE_BYTES)
        answer = _Greeting(challenge, _proof(token, "rank", theirs.challenge))
        self._frames.send_one(_encode(answer))
        shown = _greeting.decode(self._received()).proof
        if not hmac.compare_digest(shown, _proof(token, "store", challenge)):
            raise ProtocolError("it has another one")

    def _received(self) -> bytes:
        payload = self._frames.receive()
        if payload is None:
            raise ConnectionResetError("the connection was closed")
        return payload

    def _ask(self, what: Any, keys: Sequence[str] = (), *values: bytes, number: int = 0) -> Any:
        return self._exchange(_Request(what, list(keys), list(values), number), self.timeout)

    def _exchange(self, request: _Request, timeout: timedelta) -> Any:
        request.wait_s = timeout.total_seconds()
        with self._asking:
            try:
                self._socket.settimeout(request.wait_s + _GRACE_S)
                self._frames.send_one(_encode(request))
                reply = _reply.decode(self._received())
            except OSError as error:
                # What comes after an answer that was not awaited belongs to another question.
                self._socket.close()
                raise dist.DistNetworkError(f"rank 0's store is gone: {error}") from error
            except BaseException:
                self._socket.close()
                raise
        if reply.is_late:
            keys = ", ".join(request.keys[:3])
            raise dist.DistStoreError(f"waited {request.wait_s:.0f} s for {keys}")
        return reply.found

    # -- torch's interface: https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.Store

    def set(self, key: str, value: str | bytes) -> None:
        self._ask("set", [key], _as_bytes(value))

    def get(self, key: str) -> bytes:
        return bytes(self._ask("get", [key])[0])

    def add(self, key: str, amount: int) -> int:
        return int(self._ask("add", [key], number=amount))

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        return bytes(self._ask("swap", [key], _as_bytes(expected), _as_bytes(desired))[0])

    def check(self, keys: list[str]) -> bool:
        return bool(self._ask("check", keys))

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        self._exchange(_Request("wait", list(keys)), timeout or self.timeout)

    def delete_key(self, key: str) -> bool:
        return bool(self._ask("delete", [key]))

    def num_keys(self) -> int:
        return int(self._ask("count"))

    # Under these names torch (2.13) asks from C++.
    deleteKey = delete_key  # noqa: N815
    getNumKeys = num_keys  # noqa: N815

    def append(self, key: str, value: str | bytes) -> None:
        self._ask("append", [key], _as_bytes(value))

    def multi_get(self, keys: list[str]) -> list[bytes]:
        return list(self._ask("get", keys))

    def multi_set(self, keys: list[str], values: Sequence[str | bytes]) -> None:
        self._ask("set", keys, *(_as_bytes(value) for value in values))

    def has_extended_api(self) -> bool:
        return True

    def clone(self) -> TokenStore:
        """A connection of its own, for a thread that must not wait for this one's waits."""
        return TokenStore(*self._place)


def _as_bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


def _connected(host: str, port: int, timeout_s: float) -> socket.socket:
    """Tried again until the deadline: a packet may be lost, a name not yet be known."""
    deadline = time.monotonic() + timeout_s
    while True:
        left_s = deadline - time.monotonic()
        try:
            found = socket.create_connection((host, port), timeout=max(0.1, left_s))
        except OSError as error:
            if left_s <= 0:
                raise LaunchError(
                    f"this rank can't reach the store of its group at {host}:{port}: {error}"
                ) from error
            time.sleep(0.1)
        else:
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return found
