"""What the workers of a cluster, or of one run, measure, for all who watch it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from jupyter_ddl.errors import JupyterDDLError
from jupyter_ddl.protocol.replies import TelemetryResult
from jupyter_ddl.protocol.requests import GetTelemetry
from jupyter_ddl.protocol.telemetry import EncodedTelemetry
from jupyter_ddl.server.links import Links

__all__ = ["TelemetryFeed"]

log = logging.getLogger(__name__)

_INTERVAL_S = 1.0
_AWAY_S = 3.0
_TIMEOUT_S = 5.0

OnTelemetry = Callable[[EncodedTelemetry], None]


class TelemetryFeed:
    """Runs on the server's loop while somebody watches.

    Parameters
    ----------
    cluster : callable
        Name of the cluster to ask, None while none drives the run.
    run_id : str
        Empty: the whole cluster.
    """

    def __init__(
        self,
        cluster: Callable[[], str | None],
        run_id: str,
        links: Links,
        on_telemetry: OnTelemetry,
    ) -> None:
        self._cluster = cluster
        self._run_id = run_id
        self._links = links
        self._on_telemetry = on_telemetry
        self._seen: EncodedTelemetry | None = None

    async def run(self) -> None:
        """Ask once a second until cancelled; a cluster that has gone may come back."""
        while True:
            name = self._cluster()
            if name is None:
                await asyncio.sleep(_INTERVAL_S)
                continue
            try:
                await self._poll(name)
            except JupyterDDLError as error:
                log.debug("telemetry of cluster %s: %s", name, error)
                await asyncio.sleep(_AWAY_S)
            await asyncio.sleep(_INTERVAL_S)

    async def _poll(self, name: str) -> None:
        result = await self._links.ask(name, GetTelemetry(self._run_id), _TIMEOUT_S)
        if isinstance(result, TelemetryResult) and result.telemetry != self._seen:
            self._seen = result.telemetry
            self._on_telemetry(result.telemetry)
