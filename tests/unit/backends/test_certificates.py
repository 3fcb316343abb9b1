"""The port of a controller elsewhere lets in who has the one client's key, and nobody else."""

from __future__ import annotations

import asyncio
import gc
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jupyter_ddl.backends.certificates import (
    SERVER_FILES,
    PortKeys,
    port_keys,
    server_context,
    temporary_security,
)
from jupyter_ddl.controller.server import Server
from jupyter_ddl.errors import ClusterError, ControllerError
from jupyter_ddl.protocol.framing import encode_frame, read_frame
from jupyter_ddl.protocol.link import Link
from jupyter_ddl.protocol.replies import Accepted, Reply
from jupyter_ddl.protocol.requests import GetStatus


class Handler:
    async def handle(self, *_: Any) -> Accepted:
        return Accepted(run_id="heard")

    def closed(self, *_: Any) -> None: ...


@asynccontextmanager
async def served(keys: PortKeys, folder: Path) -> AsyncIterator[int]:
    """A controller's port, with the files that its pod has of the keys."""
    for name, text in keys.files().items():
        if name in SERVER_FILES:
            (folder / name).write_text(text)
    server = Server(folder / "sock", Handler())  # type: ignore[arg-type]
    await server.start()
    try:
        yield await server.listen(server_context(folder), 0, "127.0.0.1")
    finally:
        await server.close()


async def hear(port: int, context: ssl.SSLContext | None) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    link = Link("there", reader, writer)
    try:
        result = await link.request(GetStatus(), 30.0)
    finally:
        await link.close()
    assert isinstance(result, Accepted)
    return result.run_id


def test_who_has_the_clients_key_is_heard(tmp_path: Path) -> None:
    async def live() -> None:
        keys = PortKeys.of_files(port_keys().files())
        async with served(keys, tmp_path) as port:
            assert await hear(port, keys.client_context()) == "heard"

    asyncio.run(live())


def of_another_cluster(_: PortKeys) -> ssl.SSLContext:
    return port_keys().client_context()


def with_another_clients_key(keys: PortKeys) -> ssl.SSLContext:
    """Trusts the server, and shows a certificate of its own making."""
    other = port_keys()
    return PortKeys(
        keys.server_certificate, keys.server_key, other.client_certificate, other.client_key
    ).client_context()


def with_the_servers_key(keys: PortKeys) -> ssl.SSLContext:
    """What a controller's pod has is not enough to be its client."""
    return PortKeys(
        keys.server_certificate, keys.server_key, keys.server_certificate, keys.server_key
    ).client_context()


def with_the_key_of_workers(keys: PortKeys) -> ssl.SSLContext:
    dask = temporary_security()
    return PortKeys(
        keys.server_certificate, keys.server_key, dask.tls_ca_file, dask.tls_client_key
    ).client_context()


def without_any(keys: PortKeys) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(cadata=keys.server_certificate)
    return context


@pytest.mark.parametrize(
    "context",
    [
        of_another_cluster,
        with_another_clients_key,
        with_the_servers_key,
        with_the_key_of_workers,
        without_any,
        lambda _: None,
    ],
)
def test_nobody_else_is(context: Any, tmp_path: Path) -> None:
    async def live() -> None:
        keys = port_keys()
        async with served(keys, tmp_path) as port:
            with pytest.raises((ssl.SSLError, OSError, EOFError, ClusterError)):
                await hear(port, context(keys))
            assert await hear(port, keys.client_context()) == "heard", "it goes on serving"

    asyncio.run(live())


def test_a_client_is_not_led_to_another_server(tmp_path: Path) -> None:
    async def live() -> None:
        keys, other = port_keys(), port_keys()
        # Whoever answers at the address knows the client's certificate, which is no secret.
        fake = PortKeys(
            other.server_certificate, other.server_key, keys.client_certificate, keys.client_key
        )
        async with served(fake, tmp_path) as port:
            with pytest.raises(ssl.SSLCertVerificationError):
                await hear(port, keys.client_context())

    asyncio.run(live())


def test_no_port_is_opened_to_clients_without_a_certificate(tmp_path: Path) -> None:
    async def live() -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with pytest.raises(ControllerError, match="without a certificate"):
            await Server(tmp_path / "sock", Handler()).listen(context, 0)  # type: ignore[arg-type]

    asyncio.run(live())


def test_a_clients_key_is_on_no_disk_and_leaves_no_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    keys = port_keys()
    gc.collect()
    before = len(list(Path("/proc/self/fd").iterdir()))
    context = keys.client_context()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert list(tmp_path.iterdir()) == []
    assert context.verify_mode is ssl.CERT_REQUIRED


def test_what_is_missing_of_the_keys_is_named() -> None:
    files = port_keys().files()
    del files["client.key"]
    with pytest.raises(ClusterError, match=r"lack client\.key"):
        PortKeys.of_files(files)


def test_an_answer_that_was_given_up_is_not_taken_for_the_next_one() -> None:
    """What comes late has another number."""

    async def live() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_frame(reader)
            for number in (7, 1):
                reply = Reply(number, Accepted(run_id=str(number)))
                writer.write(encode_frame(msgspec.msgpack.encode(reply)))
            writer.close()
            await writer.wait_closed()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        assert await hear(port, None) == "1"
        server.close()
        await server.wait_closed()

    asyncio.run(live())
