"""What runs beside the Dask scheduler in its pod: the cluster's lease, and two answers for the
operator.

Loaded with ``--preload`` and as a module of HTTP routes.  The controller renews the lease over TLS.
When it was silent for too long, the operator, which asks every 5 s whether the scheduler is idle,
is told so and deletes the cluster; should there be no operator, the scheduler ends by itself, and
its workers with it.

The operator speaks HTTP without TLS or credentials.  So these routes reveal nothing, and change
nothing: which workers go when the cluster shrinks, the controller has said before.  And nobody is
listened to for long: what the operator says has a few bytes.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections.abc import Callable
from typing import Any

from distributed import Scheduler
from distributed.http.utils import RequestHandler
from tornado.httpserver import HTTPServer

from jupyter_ddl.backends.patience import PatientScheduler
from jupyter_ddl.store.awake import TICK_S, AwakeClock

__all__ = ["END", "RENEW", "PodLease", "dask_setup", "routes"]

log = logging.getLogger(__name__)


RENEW = "jupyter_ddl_renew"
"""Name of the scheduler's handler by which the controller renews the lease."""
END = "jupyter_ddl_end"
"""The same of the one by which it gives the lease up."""
_LONG_AGO_S = 7 * 86400.0
"""The operator compares with its own clock, which may differ from this one."""
_OPERATOR_S = 20.0
"""What the operator, if there is one, has time for before the scheduler ends by itself."""
_NAME = "jupyter_ddl_lease"
_MAX_BODY_BYTES = 256
_HTTP_TIMEOUT_S = 10.0


class PodLease:
    """Used on the scheduler's loop only.

    Parameters
    ----------
    awake : callable
        Seconds of a clock that is looked at once a second, by :meth:`watch`.
    """

    def __init__(self, scheduler: Scheduler, lease_s: float, awake: Callable[[], float]) -> None:
        self._scheduler = scheduler
        self._lease_s = lease_s
        self._awake = awake
        self._renewed_at_s = awake()
        self._is_given_up = False
        self._retiring: tuple[str, ...] = ()

    @property
    def is_over(self) -> bool:
        return self._silent_s() > self._lease_s

    def _silent_s(self) -> float:
        return self._awake() - self._renewed_at_s

    def renew(self, retiring: tuple[str, ...] = ()) -> str:
        """The controller lives; ``retiring`` names the workers that are to go.

        Returns
        -------
        str
            Id of this scheduler: another one means that the former was lost.
        """
        if not self._is_given_up:
            self._renewed_at_s = self._awake()
        self._retiring = tuple(retiring)
        return str(self._scheduler.id)

    def end(self) -> None:
        """The controller ends, and could not end the cluster itself.

        Its container begins another one, which renews nothing that was given up for good.
        """
        self._is_given_up = True
        self._renewed_at_s = self._awake() - self._lease_s - TICK_S

    def retired(self, n: int) -> dict[str, dict[str, str]]:
        """``n`` workers for the operator to delete; none that the controller has not named."""
        return {name: {"name": name} for name in self._retiring[:n]}

    async def watch(self) -> None:
        """End the scheduler some time after its lease."""
        while self._silent_s() < self._lease_s + _OPERATOR_S:  # noqa: ASYNC110 - time passes
            await asyncio.sleep(TICK_S)
        log.warning("nobody has renewed this cluster's lease of %.0f s: it ends", self._lease_s)
        await self._scheduler.close(reason="lease-expired")


def _listen_briefly(server: HTTPServer) -> None:
    """Refuse long bodies, on every path, before they are read; and those who never finish."""
    server.conn_params.max_body_size = _MAX_BODY_BYTES
    server.conn_params.body_timeout = server.conn_params.header_timeout = _HTTP_TIMEOUT_S


def dask_setup(scheduler: Scheduler) -> None:
    """Called by Dask before the scheduler listens for workers and clients."""
    _listen_briefly(scheduler.http_server)
    clock = AwakeClock()
    PatientScheduler(scheduler, clock.read)
    lease = PodLease(scheduler, float(os.environ.get("JUPYTER_DDL_LEASE_S", "300")), clock.read)
    scheduler.extensions[_NAME] = lease
    scheduler.handlers[RENEW] = lease.renew
    scheduler.handlers[END] = lease.end
    scheduler.ddl_lease_watch = asyncio.ensure_future(lease.watch())


class _CheckIdle(RequestHandler):  # type: ignore[misc]
    def get(self) -> None:
        lease: PodLease = self.server.extensions[_NAME]
        idle_since = time.time() - _LONG_AGO_S if lease.is_over else 0
        self.set_header("Content-Type", "application/json")
        self.write(json.dumps({"idle_since": idle_since}))


class _RetireWorkers(RequestHandler):  # type: ignore[misc]
    def post(self) -> None:
        lease: PodLease = self.server.extensions[_NAME]
        asked: Any = json.loads(self.request.body or b"{}")
        n = asked.get("n", 0) if isinstance(asked, dict) else 0
        chosen = lease.retired(n if isinstance(n, int) else 0)
        if not chosen:
            self.set_status(503)
        self.set_header("Content-Type", "application/json")
        self.write(json.dumps(chosen))


routes: list[tuple[str, Any, dict[str, Any]]] = [
    ("/api/v1/check_idle", _CheckIdle, {}),
    ("/api/v1/retire_workers", _RetireWorkers, {}),
]
