"""The way to a port of a cluster's scheduler pod: straight, or through the API server."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import time
from typing import Any

from jupyter_ddl.backends.kubernetes.api import KubeApi
from jupyter_ddl.backends.kubernetes.manifest import COMM_PORT
from jupyter_ddl.backends.kubernetes.pod_status import is_ending, is_ready

__all__ = ["Route", "bracketed", "is_policy_enforced"]


log = logging.getLogger(__name__)

_DIRECT_S = 1.0
_FORWARD_S = 10.0
_STRAIGHT_S = 60.0
"""Who was reached straight is away, and not out of reach, for so long."""


class Route:
    """The way to one port of a Service; ``close`` gives a forwarded port back.

    Used on one loop only.
    """

    def __init__(self, api: KubeApi, service: str, port: int) -> None:
        self._api = api
        self._service = service
        self._port = port
        self._host: str | None = None
        self._found: dict[str, Any] = {}
        self._forward: Any = None
        self._straight_at_s = float("-inf")

    async def place(self, *, may_forward: bool) -> tuple[str, int] | None:
        """Host and port at which it is reached now; None while it is not.

        Parameters
        ----------
        may_forward : bool
            The pod is known to serve: if it can't be reached straight, it is out of reach.

        Raises
        ------
        BackendError
            The API server refused.
        """
        if self._host is None:
            self._found = await self._api.get("services", self._service)
            host = self._found["spec"].get("clusterIP")
            self._host = None if host in (None, "", "None") else str(host)
        if self._host is not None and await _answers(self._host, self._port):
            self._straight_at_s = time.monotonic()
            return self._host, self._port
        if not may_forward or time.monotonic() - self._straight_at_s < _STRAIGHT_S:
            return None
        try:
            return "127.0.0.1", await self._forwarded()
        except Exception as error:  # noqa: BLE001 - kr8s and httpx have trees of their own
            log.warning("no port can be forwarded to service %s: %r", self._service, error)
            return None

    async def _forwarded(self) -> int:
        if self._forward is None:
            log.info("service %s is out of reach: forwarding a port to it", self._service)
            # Not fetched by kr8s, which lists where the Role allows to get.
            service = _listed_service()(
                self._found, namespace=self._api.namespace, api=self._api.raw
            )
            forward = service.portforward(self._port, local_port="auto", address=["127.0.0.1"])
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


@functools.cache
def _listed_service() -> Any:
    """A class of Services that know their pods from a list, which is all that the Role allows.

    That of kr8s lists them as well, and gets each to see whether it is ready.
    """
    from kr8s.asyncio.objects import Pod, Service

    class ListedService(Service):  # type: ignore[misc]  # kr8s is untyped
        async def async_ready_pods(self) -> list[Pod]:
            selector = ",".join(f"{key}={value}" for key, value in self.spec["selector"].items())
            found = self.api.async_get("pods", namespace=self.namespace, label_selector=selector)
            return [pod async for pod in found if is_ready(pod.raw) and not is_ending(pod.raw)]

    return ListedService


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


def bracketed(host: str) -> str:
    """A host as it stands in an address with a port."""
    return f"[{host}]" if ":" in host else host
