"""The way from the controller to a cluster's scheduler: straight, or through the API server."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

from jupyter_ddl.backends.kubernetes.api import KubeApi
from jupyter_ddl.backends.kubernetes.manifest import COMM_PORT

__all__ = ["Route", "is_policy_enforced"]


log = logging.getLogger(__name__)

_DIRECT_S = 1.0
_FORWARD_S = 10.0


class Route:
    """Used on the controller's loop only; ``close`` gives a forwarded port back."""

    def __init__(self, api: KubeApi, service: str) -> None:
        self._api = api
        self._service = service
        self._host: str | None = None
        self._found: dict[str, Any] = {}
        self._forward: Any = None

    async def address(self, *, may_forward: bool) -> str | None:
        """Where the scheduler answers now; None while it does not.

        Parameters
        ----------
        may_forward : bool
            The scheduler is known to serve: if it can't be reached straight, it is out of reach.
        """
        if self._host is None:
            self._found = await self._api.get("services", self._service)
            host = self._found["spec"].get("clusterIP")
            self._host = None if host in (None, "", "None") else str(host)
        if self._host is not None and await _answers(self._host, COMM_PORT):
            return f"tls://{_bracketed(self._host)}:{COMM_PORT}"
        if not may_forward:
            return None
        try:
            port = await self._forwarded()
        except Exception as error:  # noqa: BLE001 - kr8s and httpx have trees of their own
            log.warning("no port can be forwarded to service %s: %r", self._service, error)
            return None
        return f"tls://127.0.0.1:{port}" if await _answers("127.0.0.1", port) else None

    async def _forwarded(self) -> int:
        if self._forward is None:
            from kr8s.asyncio.objects import Service

            log.info("service %s is out of reach: forwarding a port to it", self._service)
            # Not fetched by kr8s, which lists where the Role allows to get.
            service = Service(self._found, namespace=self._api.namespace, api=self._api.raw)
            forward = service.portforward(COMM_PORT, local_port="auto", address=["127.0.0.1"])
            async with asyncio.timeout(_FORWARD_S):
                await forward.start()
            self._forward = forward
        return int(self._forward.local_port)

    async def close(self) -> None:
        forward, self._forward = self._forward, None
        if forward is not None:
            with contextlib.suppress(Exception):  # its connections may be broken in any way
                async with asyncio.timeout(_DIRECT_S):
                    await forward.stop()


async def is_policy_enforced(scheduler_host: str, worker_address: str) -> bool | None:
    """Whether the network keeps this process, which is not a pod of the cluster, from a worker.

    Returns
    -------
    bool or None
        None when pods are out of reach from here anyway.
    """
    if not await _answers(scheduler_host, COMM_PORT):
        return None
    host, _, port = worker_address.removeprefix("tls://").rpartition(":")
    return not await _answers(host.strip("[]"), int(port))


async def _answers(host: str, port: int) -> bool:
    try:
        async with asyncio.timeout(_DIRECT_S):
            _, writer = await asyncio.open_connection(host, port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
