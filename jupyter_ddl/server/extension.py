"""The Jupyter server extension: on by default, asleep until a browser connects."""

from __future__ import annotations

from jupyter_server.extension.application import ExtensionApp

from jupyter_ddl.server.handlers import routes
from jupyter_ddl.server.hub import Hub

__all__ = ["ServerExtension"]


class ServerExtension(ExtensionApp):
    """Found through ``jupyter_ddl._jupyter_server_extension_points``."""

    name = "jupyter_ddl"

    def initialize_handlers(self) -> None:
        self._hub = Hub()
        self.handlers.extend(routes(self._hub))

    async def stop_extension(self) -> None:
        """The server ends: browsers and controllers are let go, and nothing is stopped."""
        await self._hub.close()
