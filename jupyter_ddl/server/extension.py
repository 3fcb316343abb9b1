"""The Jupyter server extension: on by default, asleep until a browser connects."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from pathlib import Path
from typing import Any

from jupyter_server.auth.decorator import authorized, ws_authenticated
from jupyter_server.base.handlers import APIHandler, JupyterHandler
from jupyter_server.base.websocket import WebSocketMixin
from jupyter_server.extension.application import ExtensionApp
from tornado import web
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from jupyter_ddl import __version__
from jupyter_ddl.client.copies import here
from jupyter_ddl.errors import JupyterDDLError, RunNotFoundError
from jupyter_ddl.recording.page import export_run
from jupyter_ddl.server.hub import MAX_CONNECTIONS, Connection, Hub
from jupyter_ddl.store.timelines import read_timeline

__all__ = ["ServerExtension", "routes"]


# The routes: one websocket for the panel, three kinds of downloads, and whether all this is there.

_RESOURCE = "jupyter_ddl"
"""What an authorizer of Jupyter's may allow or forbid."""
_RUN = r"[A-Za-z0-9-]{1,80}"
_TRACE = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}\.json\.gz"
_MAX_MESSAGE_BYTES = 64 << 10
_CHUNK_BYTES = 1 << 20
_FORMS = {"jsonl": "application/x-ndjson", "html": "text/html"}


class StatusHandler(APIHandler):
    """Tells a front end that the extension is there, and what it has seen."""

    auth_resource = _RESOURCE

    def initialize(self, hub: Hub) -> None:
        self._hub = hub

    @web.authenticated
    @authorized
    async def get(self) -> None:
        running = await self._hub.links.running()
        await self.finish(
            {
                "version": __version__,
                "clusters": [info.name for info in running],
                "n_connections": len(self._hub.connections),
                "n_refused": self._hub.n_refused,
            }
        )


class ExportHandler(APIHandler):
    """A recording of a run to be saved, or (``?form=html``) a page that plays it."""

    auth_resource = _RESOURCE

    @web.authenticated
    @authorized
    async def get(self, run_id: str) -> None:
        form = self.get_query_argument("form", "jsonl")
        if form not in _FORMS:
            raise web.HTTPError(400, f"form is one of {', '.join(_FORMS)}")
        with tempfile.TemporaryDirectory() as directory:
            file = Path(directory) / f"recording.{form}"
            try:
                await asyncio.to_thread(export_run, run_id, file)
            except JupyterDDLError as error:
                self.set_status(404)
                await self.finish({"code": error.code, "message": error.message})
                return
            self.set_header("Content-Type", _FORMS[form])
            self.set_header("Content-Disposition", f'attachment; filename="{run_id}.{form}"')
            with file.open("rb") as data:
                while chunk := await asyncio.to_thread(data.read, _CHUNK_BYTES):
                    self.write(chunk)
                    await self.flush()
        await self.finish()


class TimelineHandler(APIHandler):
    """What a recording's player plays, for outputs whose kernel has ended."""

    auth_resource = _RESOURCE

    @web.authenticated
    @authorized
    async def get(self, digest: str) -> None:
        data = await asyncio.to_thread(read_timeline, digest)
        if data is None:
            raise web.HTTPError(404, "this timeline is not kept here any more")
        self.set_header("Cache-Control", "private, max-age=86400, immutable")
        await self.finish(data, set_content_type="application/octet-stream")


class TraceHandler(APIHandler):
    """The profiler's trace of one rank of a run, to be saved."""

    auth_resource = _RESOURCE

    @web.authenticated
    @authorized
    async def get(self, run_id: str, file: str) -> None:
        try:  # the route lets plain names pass
            data = await asyncio.to_thread(lambda: here(run_id, f"profiles/{file}").open("rb"))
        except (OSError, JupyterDDLError):
            self.set_status(404)
            message = f"run {run_id} has no trace {file}; it may have been deleted"
            await self.finish({"code": RunNotFoundError.code, "message": message})
            return
        self.set_header("Content-Type", "application/gzip")
        self.set_header("Content-Disposition", f'attachment; filename="{run_id}-{file}"')
        with data:
            while chunk := await asyncio.to_thread(data.read, _CHUNK_BYTES):
                self.write(chunk)
                await self.flush()
        await self.finish()


class LiveHandler(WebSocketMixin, WebSocketHandler, JupyterHandler):
    """The panel's websocket; Jupyter checks the user and the page's origin before it opens."""

    auth_resource = _RESOURCE

    def initialize(self, hub: Hub) -> None:
        self._hub = hub
        self._connection: Connection | None = None

    @property
    def max_message_size(self) -> int:
        """Bytes; a larger message ends the connection before it is read."""
        return _MAX_MESSAGE_BYTES

    def set_default_headers(self) -> None:
        """Those of a page make no sense here."""

    def get_compression_options(self) -> None:
        """None: a compressed message would be large in memory before it is judged."""

    @ws_authenticated
    async def get(self, *args: Any, **kwargs: Any) -> None:
        # A page may start and stop clusters through it, so reading alone is not enough.
        allowed = self.authorizer.is_authorized(self, self.current_user, "execute", _RESOURCE)
        if not (await allowed if asyncio.iscoroutine(allowed) else allowed):
            raise web.HTTPError(403)
        if len(self._hub.connections) >= MAX_CONNECTIONS:
            raise web.HTTPError(429, f"{MAX_CONNECTIONS} browser tabs are connected already")
        await super().get(*args, **kwargs)

    def open(self, *args: Any, **kwargs: Any) -> None:
        super().open(*args, **kwargs)
        self._connection = self._hub.join(self._send, self.close)

    def on_message(self, message: str | bytes) -> None:
        if self._connection is not None:
            self._connection.receive(message)

    def on_close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._leaving = asyncio.ensure_future(self._hub.leave(connection))

    async def _send(self, message: bytes) -> None:
        with contextlib.suppress(WebSocketClosedError):
            await self.write_message(message, binary=message.startswith(b"\0"))


def routes(hub: Hub) -> list[tuple[str, type[web.RequestHandler], dict[str, Any]]]:
    """Pattern below the server's base URL, handler, and what it needs."""
    return [
        (r"/jupyter-ddl/api/live", LiveHandler, {"hub": hub}),
        (r"/jupyter-ddl/api/status", StatusHandler, {"hub": hub}),
        (rf"/jupyter-ddl/api/runs/({_RUN})/export", ExportHandler, {}),
        (rf"/jupyter-ddl/api/runs/({_RUN})/profiles/({_TRACE})", TraceHandler, {}),
        (r"/jupyter-ddl/api/timelines/([0-9a-f]{64})", TimelineHandler, {}),
    ]


class ServerExtension(ExtensionApp):
    """Found through ``jupyter_ddl._jupyter_server_extension_points``."""

    name = "jupyter_ddl"

    def initialize_handlers(self) -> None:
        self._hub = Hub()
        self.handlers.extend(routes(self._hub))

    async def stop_extension(self) -> None:
        """The server ends: browsers and controllers are let go, and nothing is stopped."""
        await self._hub.close()
